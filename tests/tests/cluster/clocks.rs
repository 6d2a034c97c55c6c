//! Nodes whose wall clocks are wrong, or are set while they run. `faketime` shows a kernel another time.

use std::path::{Path, PathBuf};

use mgp_tests::harness::kernel::nodes::config;
use mgp_tests::harness::{DEADLINE, Kernel, wait_until};
use serde_json::Value;
use tempfile::TempDir;

use crate::scene::{call, demo, join, shows};

/// A wall clock that can be set while a kernel reads it. Clocks that nobody sets go on as they are.
struct WallClock {
    library: PathBuf,
    folder: TempDir,
}

impl WallClock {
    /// One that is right, where this machine has `faketime`; where not, that is told, and the test shows nothing.
    fn new() -> Option<Self> {
        let Some(library) = library() else {
            println!("NOT SHOWN, for want of faketime: apt-get install faketime");
            return None;
        };
        let folder = TempDir::new().unwrap();
        let clock = Self { library, folder };
        clock.set("+0");
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("off")
    }

    /// Puts it off by so much, `+90s` or `-1d` say.
    fn set(&self, off: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, off).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// A kernel that reads it.
    async fn node(&self, name: &str, servers: &str) -> Kernel {
        let file = self.file().display().to_string();
        let variables = [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        Kernel::with_environment(&config(name, "127.0.0.1:0", servers), &variables).await
    }
}

/// Debian has it in a folder named after the machine.
fn library() -> Option<PathBuf> {
    let machines = std::fs::read_dir("/usr/lib").ok()?;
    let places = machines.filter_map(|entry| {
        let place = Path::new("faketime/libfaketimeMT.so.1");
        Some(entry.ok()?.path().join(place))
    });
    places.into_iter().find(|place| place.exists())
}

/// What `mgp cluster status` says is wrong with the other node.
async fn said_of(of: &Kernel, name: &str) -> String {
    let status = of.mgp_json(&["cluster", "status"]).await;
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    let node = nodes.into_iter().find(|node| node["name"] == name);
    let why = node.map_or(Value::Null, |node| node["why"].clone());
    why.as_str().unwrap_or_default().to_owned()
}

async fn is_said(of: &Kernel, name: &str, words: &str) {
    let mut said = String::new();
    wait_until(&format!("{name}: {words:?}"), DEADLINE, async || {
        said = said_of(of, name).await;
        match words {
            "" => said.is_empty(),
            words => said.contains(words),
        }
    })
    .await;
}

const TOOL: &str = "nas/demo:test_simple_text";

async fn calls(kernel: &Kernel, succeed: bool) {
    let what = format!("calls succeed: {succeed}");
    wait_until(&what, DEADLINE, async || {
        call(kernel, TOOL).await == succeed
    })
    .await;
}

/// PRJ-006, FED-051: where an admin's clock is ahead of the owner's, what expires ends by the one that is ahead, and both
/// say that they differ; what does not expire, and the lease, know nothing of wall clocks.
#[tokio::test(flavor = "multi_thread")]
async fn grant_expires_by_the_clock_that_is_ahead() {
    let (Some(of_nas), Some(of_desk)) = (WallClock::new(), WallClock::new()) else {
        return;
    };
    of_desk.set("+60s");
    let nas = of_nas.node("nas", &demo()).await;
    let desk = of_desk.node("desk", "").await;
    nas.connected(&["demo"]).await;
    join(&nas, &desk, &["--role", "admin"]).await;
    is_said(&nas, "desk", "ahead of the one here").await;
    is_said(&desk, "nas", "behind the one here").await;
    nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo", "--expires", "30m"])
        .await;
    shows(&desk, "nas__demo__test_simple_text").await;
    calls(&desk, true).await;
    of_desk.set("+40m");
    wait_until("the grant has ended early", DEADLINE, async || {
        let explained = nas.mgp_json(&["explain", "local@desk", "demo"]).await;
        let considered = explained["considered"].to_string();
        considered.contains("by the clock of another admin node")
    })
    .await;
    calls(&desk, false).await;
    of_desk.set("+0");
    calls(&desk, true).await;
    is_said(&nas, "desk", "").await;
    nas.mgp_json(&["grants", "remove", "local@desk", "demo"])
        .await;
    nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
    for off in ["+1d", "-1d"] {
        of_nas.set(off);
        let side = if off == "+1d" { "behind" } else { "ahead of" };
        is_said(&nas, "desk", side).await;
        calls(&desk, true).await;
        let status = nas.mgp_json(&["cluster", "status"]).await;
        assert_eq!(status["troubles"], Value::Null, "{status:#}");
    }
}
