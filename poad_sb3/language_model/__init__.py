"""The language model: loading, LoRA, packed forward passes, the head, decoding and the critic."""
