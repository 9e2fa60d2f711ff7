//! Keeps objects out of namespaces that do not exist or are going, and the system namespaces in place.
