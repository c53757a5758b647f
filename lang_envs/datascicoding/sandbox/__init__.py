"""The sandbox: runs code that a model wrote where it can do no harm and see no label it is scored on."""
