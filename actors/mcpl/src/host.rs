//! The host: asks and tells MCPL servers, and takes what they ask and tell.
