//! `mgp logins list` where nobody has signed in; the suite of servers has the rest.

use mgp_tests::harness::{DEADLINE, Program};
use serde_json::json;

use crate::scene;

/// With a kernel and without one.
#[tokio::test]
async fn empty_list_of_logins_shows_how_to_sign_in() {
    let kernel = scene::kernel().await;
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().display().to_string();
    let nowhere = home.path().join("none.sock").display().to_string();
    for program in [
        kernel.program(&["logins", "list"]),
        Program::ours("mgp", ["logins", "list"]).env("MGP_SOCKET", &*nowhere),
    ] {
        let program = program
            .env("HOME", &*folder)
            .env("XDG_CONFIG_HOME", &*folder);
        let listed = program.clone().output(DEADLINE).await;
        assert_eq!(listed.status.code(), Some(0), "{listed:?}");
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(
            listed,
            "no logins; `mgp logins add SERVER` signs in to a remote server\n"
        );
        let listed = program.arg("--json").output(DEADLINE).await;
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(listed, json!({"logins": [], "wanted": {}}));
    }
}
