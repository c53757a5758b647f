"""VirtualHome: a person in a home of four rooms carries out household commands."""
