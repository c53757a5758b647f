"""The memory that a training needs, estimated before it starts."""
