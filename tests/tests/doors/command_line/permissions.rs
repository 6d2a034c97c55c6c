//! `mgp permissions list|remove`.

use std::process::Output;

use mgp_tests::harness::{Kernel, Program};
use serde_json::json;

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Server `needy` was allowed two permissions by its entry, and `plain` needs none.
async fn start_kernel() -> Kernel {
    let capability = json!({"version": "0.2.0", "extensions": ["security"],
        "permissions_required": ["network.outbound", "camera"]});
    let needy = Program::fixture(&["--mgp", &capability.to_string()]);
    let needy = needy.entry("needy");
    let allowed = "permissions = [\"network.outbound\", \"camera\"]\n";
    let plain = Program::fixture(&[]).entry("plain");
    let kernel = Kernel::start(&format!("{needy}{allowed}{plain}")).await;
    kernel.connected(&["needy", "plain"]).await;
    kernel
}

#[tokio::test]
async fn permissions_of_servers_are_listed() {
    let kernel = start_kernel().await;
    let listed = stdout(&kernel.mgp(&["permissions", "list"]).await);
    let mut rows = listed.lines().map(|row| row.split_whitespace());
    assert!(
        rows.next().unwrap().eq(["SERVER", "PERMISSION"]),
        "{listed}"
    );
    let rows: Vec<String> = rows.map(|row| row.collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(rows.len(), 2, "{listed}");
    for permission in ["needy network.outbound", "needy camera"] {
        assert!(
            rows.iter().any(|row| row.starts_with(permission)),
            "{listed}"
        );
    }
    assert_eq!(
        stdout(&kernel.mgp(&["permissions", "list", "needy"]).await),
        listed
    );
    let none = kernel.mgp(&["permissions", "list", "plain"]).await;
    assert_eq!(stdout(&none), "plain needs no permission\n");

    let all = kernel.mgp_json(&["permissions", "list"]).await;
    assert_eq!(all["servers"].as_array().unwrap().len(), 1, "{all}");
    assert_eq!(all["servers"][0]["server"], "needy");
    assert_eq!(
        all["servers"][0]["permissions"].as_array().unwrap().len(),
        2,
        "{all}"
    );
    let none = kernel.mgp_json(&["permissions", "list", "plain"]).await;
    assert_eq!(none, json!({"servers": []}));
}

#[tokio::test]
async fn a_permission_is_removed() {
    let kernel = start_kernel().await;
    let removed = kernel
        .mgp(&["permissions", "remove", "needy", "camera"])
        .await;
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    assert_eq!(stdout(&removed), "needy may not use camera any more\n");
    let again = kernel
        .mgp_json(&["permissions", "remove", "needy", "camera"])
        .await;
    assert_eq!(
        again,
        json!({"server": "needy", "permissions": ["camera"], "had": false, "restarts": false})
    );
    let listed = stdout(&kernel.mgp(&["permissions", "list"]).await);
    let row = listed.lines().find(|row| row.contains("camera")).unwrap();
    assert!(row.contains("denied"), "{listed}");
}

/// A misspelt name is wrong usage, with the nearest name, in text and in JSON; nothing is decided.
#[tokio::test]
async fn unknown_servers_and_permissions_are_wrong_usage() {
    let kernel = start_kernel().await;
    for (args, suggested) in [
        (&["permissions", "list", "nedy"][..], "needy"),
        (&["permissions", "remove", "nedy", "camera"], "needy"),
        (&["permissions", "remove", "needy", "camra"], "camera"),
    ] {
        let refused = kernel.mgp(args).await;
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {refused:?}");
        assert_eq!(stdout(&refused), "", "{args:?}");
        assert!(
            stderr(&refused).contains(&format!("did you mean {suggested}?")),
            "{args:?}: {}",
            stderr(&refused)
        );
        let refused = kernel.mgp(&[args, &["--json"]].concat()).await;
        let error: serde_json::Value = serde_json::from_slice(&refused.stderr).unwrap();
        assert_eq!(error["error"]["exit_code"], 2, "{args:?}: {error}");
    }
    let listed = stdout(&kernel.mgp(&["permissions", "list"]).await);
    assert!(!listed.contains("denied"), "{listed}");
}
