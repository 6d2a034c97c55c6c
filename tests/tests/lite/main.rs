//! MCP-lite: the same tools over plain HTTP and gRPC, at a real `mgp up` with scripted servers behind it.
#![allow(clippy::unwrap_used)]

mod attacks;
mod calls;
mod clients;
mod grpc;
mod grpc_attacks;
mod listing;
mod openapi;
mod parity;
mod promises;
mod questions;
mod scene;
mod streaming;
