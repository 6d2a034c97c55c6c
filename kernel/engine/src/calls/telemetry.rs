//! What is measured, and the forms in which it is told: as text for Prometheus, and as protobuf for OTLP.
//!
//! Names and numbers only: no argument and no result of a call has a place here.

pub mod collector;
pub mod exposition;
pub mod families;
pub mod latency;
pub mod otlp;
mod protobuf;
pub mod refusal_reasons;
pub mod sampling;
pub mod spans;
