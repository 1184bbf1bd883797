"""The pages, metrics and operator actions of a consumer."""
