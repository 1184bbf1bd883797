"""Pages, metrics and operator actions of a consumer."""
