//! HTTP headers that mirror the body of a modern request (Streamable HTTP, "Request Metadata").
