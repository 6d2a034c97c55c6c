//! Kernels that are nodes of one cluster, over the loopback and over networks of their own.

#![allow(clippy::unwrap_used)]

mod backups;
mod calls;
mod clocks;
mod joining;
mod keys;
mod network;
mod patterns;
mod people;
mod regrants;
mod replicas;
mod scene;
mod shortened;
mod status;
mod strangers;
