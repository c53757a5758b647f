"""The layers that confine a program, one file each."""
