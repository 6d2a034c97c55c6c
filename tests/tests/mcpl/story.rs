//! Several servers, two channels and a host: a useful whole.
