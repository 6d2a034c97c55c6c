//! Metrics, spans and logs, and their formats: text for Prometheus, and protobuf for OTLP.
//!
//! Names and numbers only: arguments and results of calls are never included.

pub mod collector;
pub mod exposition;
pub mod families;
pub mod latency;
pub mod otlp;
mod protobuf;
pub mod sampling;
pub mod spans;
