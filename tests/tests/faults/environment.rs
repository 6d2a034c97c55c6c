//! What a server can see of the kernel and of other servers: nothing.

use std::fs::File;
use std::os::fd::AsFd;

use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::{Kernel, Program};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::json;
use tempfile::TempDir;

use crate::machine;
use crate::scene::{entry, in_state, listed, owner, server, shown, told};

/// The only variables a server gets without being given them: who and where the user is, how to
/// speak to them, whom to trust on the network, and the mark of its kernel.
const GIVEN: [&str; 17] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "MGP_SERVER",
];

/// The kernel's variables and those of other servers stay where they are; what is named in
/// `inherit_env` and set in `env` arrives.
#[tokio::test]
async fn a_server_sees_no_secrets_of_the_kernel_or_of_other_servers() {
    let rich = Program::fixture(&[]).env("OWN_KEY", "${KERNEL_KEY}-and-more");
    let servers = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n".to_owned()
        + &entry("rich", &rich, "inherit_env = [\"WANTED\"]")
        + &server("poor", &[], "");
    let variables = [("KERNEL_KEY", "s3cret"), ("WANTED", "w"), ("UNWANTED", "u")];
    let kernel = Kernel::with_environment(&servers, &variables).await;
    kernel.connected(&["rich", "poor"]).await;
    let has = machine::environment(kernel.pid());
    assert!(
        has.contains(&"KERNEL_KEY=s3cret".to_owned()),
        "or nothing is shown here"
    );
    let mut agent = owner(&kernel).await;

    let rich = told(&agent.call("rich__env", json!({})).await);
    assert_eq!(
        (&rich["OWN_KEY"], &rich["WANTED"]),
        (&json!("s3cret-and-more"), &json!("w"))
    );
    assert_eq!(
        (&rich["KERNEL_KEY"], &rich["UNWANTED"]),
        (&json!(null), &json!(null))
    );
    let poor = told(&agent.call("poor__env", json!({})).await);
    let names: Vec<_> = poor.as_object().unwrap().keys().collect();
    let given = |name: &&&String| GIVEN.contains(&name.as_str()) || name.starts_with("LC_");
    let strange: Vec<_> = names.iter().filter(|name| !given(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    let status = kernel.mgp_json(&["status"]).await.to_string();
    assert!(!status.contains("s3cret") && !poor.to_string().contains("s3cret"));
}

/// Descriptors the kernel was started with, its own, and the pipes of other servers are not
/// inherited by anybody it starts.
#[tokio::test]
async fn a_server_inherits_no_descriptors() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("left-open");
    let left_open = File::create(&path).unwrap();
    fcntl(left_open.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let path = path.display().to_string();
    let kernel = Kernel::start(&(server("one", &[], "") + &server("two", &[], ""))).await;
    kernel.connected(&["one", "two"]).await;
    let mut agent = owner(&kernel).await;

    for child in below(kernel.pid()) {
        assert!(!machine::descriptors(child).contains(&path), "{child}");
    }
    let one = machine::descriptors(pid(&mut agent, "one").await);
    let one = pipes(&one);
    let two = told(&agent.call("two__fds", json!({})).await);
    let two: Vec<String> = two["fds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fd| text(&fd["target"]))
        .collect();
    let home = kernel.folder().display().to_string();
    let strange: Vec<_> = two
        .iter()
        .filter(|target| target.starts_with(&home))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert_eq!(pipes(&two).len(), 3, "stdin, stdout, stderr: {two:?}");
    assert!(
        !pipes(&two).iter().any(|pipe| one.contains(pipe)),
        "{one:?} {two:?}"
    );
}

/// a variable that is not set keeps its own server from starting, which says so; no other.
#[tokio::test]
async fn a_missing_variable_is_named_by_the_one_server_that_needs_it() {
    let needy = Program::fixture(&[]).env("API_KEY", "${NO_SUCH_VARIABLE_HERE}");
    let mild = Program::fixture(&[]).env("API_KEY", "${NO_SUCH_VARIABLE_HERE:-mild}");
    let servers = entry("needy", &needy, "") + &entry("mild", &mild, "");
    let kernel = Kernel::start(&servers).await;
    kernel.connected(&["mild"]).await;
    let mut agent = owner(&kernel).await;
    in_state(&mut agent, "needy", "error").await;
    let reason = listed(&kernel, "needy").await["reason"].to_string();
    assert!(reason.contains("NO_SUCH_VARIABLE_HERE"), "{reason}");
    assert_eq!(
        told(&agent.call("mild__env", json!({})).await)["API_KEY"],
        "mild"
    );
}

async fn pid(agent: &mut mgp_tests::harness::Agent, id: &str) -> u32 {
    shown(agent, id).await["pid"]
        .as_u64()
        .unwrap()
        .try_into()
        .unwrap()
}

fn pipes(targets: &[String]) -> std::collections::BTreeSet<&String> {
    targets
        .iter()
        .filter(|target| target.starts_with("pipe:"))
        .collect()
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}
