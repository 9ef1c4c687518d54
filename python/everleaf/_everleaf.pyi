# What python/module.cpp has; __init__.py gives it types.
from typing import Any

Store: Any
