"""The version of the package, read from here by the build as well."""

__version__ = "0.1.0"
