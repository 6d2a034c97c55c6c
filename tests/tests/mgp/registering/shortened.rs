//! The file of registered servers lost something: names whose grants are still to be revoked, perhaps.

use std::fs;

use mgp_tests::harness::{DEADLINE, Kernel};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::registering::{MAY, agent, turner};
use crate::sandbox::starts_none;

async fn troubles(kernel: &Kernel) -> Value {
    kernel.mgp_json(&["status"]).await["troubles"].clone()
}

/// Missing, emptied, or without its last entry: it is reported, and nothing is registered until a copy is back.
#[tokio::test]
async fn nothing_is_registered_while_the_file_of_registrations_lacks_something() {
    if starts_none().await {
        return;
    }
    let kernel = Kernel::start(MAY).await;
    let mut anybody = agent(&kernel).await;
    let told = anybody.request("mgp/discovery/register", turner()).await;
    assert_eq!(told.result()["status"], "connected", "{}", told.frame);
    let mut folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    let path = folder.path().join("data/registered.journal");
    let whole = fs::read(&path).unwrap();
    assert!(!whole.is_empty());
    for left in [Some(whole.len() - 1), Some(0), None] {
        match left {
            Some(left) => fs::write(&path, &whole[..left]).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let kernel = Kernel::again(folder).await;
        let found = troubles(&kernel).await.to_string();
        assert!(found.contains("mgp accept registered.journal"), "{found}");
        let mut anybody = agent(&kernel).await;
        let told = anybody.request("mgp/discovery/register", turner()).await;
        let refused = told.error()["message"].to_string();
        assert!(refused.contains("registered.journal"), "{refused}");
        folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
    }
    fs::write(&path, &whole).unwrap();
    let kernel = Kernel::again(folder).await;
    assert_eq!(troubles(&kernel).await.as_array().map(Vec::len), Some(0));
    let mut anybody = agent(&kernel).await;
    let mut other = turner();
    other["id"] = "dynamic.other".into();
    let told = anybody.request("mgp/discovery/register", other).await;
    assert_eq!(told.result()["status"], "connected", "{}", told.frame);
}
