"""Export of a trained model: a PEFT adapter folder, merged weights, a model card, the hub."""
