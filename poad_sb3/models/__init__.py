"""What `poad_sb3.lm.LanguageModel` is made of: sources, adapters, packing, decoding, and checks of what is loaded."""
