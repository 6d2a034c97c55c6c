//! A node that is attacked, one that goes on calling it, and the key of a third one in the wrong hands.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mgp_tests::harness::process::usage::Usage;
use mgp_tests::harness::{DEADLINE, Kernel, Need, Peers, Process, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::scene::{call, demo, linked, node, shows, ticket};

/// Longest that a call of a good node may take, attack or not: the machine is shared by all tests.
const ANSWERS: Duration = Duration::from_secs(10);
/// What the kernel's memory may grow by: some thousands of small things, and what the allocator keeps.
const GROWS: u64 = 96 << 20;
/// And by long calls that are not whole: what one link may hold in messages and in windows, 128 and 70 MiB.
pub(super) const OF_A_LINK: u64 = 256 << 20;

/// `nas` has the server `demo`, which `desk` may call. `mallory` was let in, and its kernel has ended; what is left
/// of it is the file of its key.
pub(super) struct Siege {
    pub(super) nas: Kernel,
    pub(super) desk: Kernel,
    pub(super) key: PathBuf,
    pub(super) peers: Peers,
    resident: u64,
    _mallory: TempDir,
}

impl Siege {
    /// None where the hostile nodes cannot run; that is told.
    pub(super) async fn lay(role: &str) -> Option<Self> {
        let peers = Peers::find(&[Need::Hostile])?;
        let nas = node("nas", &demo()).await;
        let (desk, mallory) = (node("desk", "").await, node("mallory", "").await);
        nas.connected(&["demo"]).await;
        for (guest, role) in [(&desk, "member"), (&mallory, role)] {
            let ticket = ticket(&nas, &["--approved", "--role", role]).await;
            let joined = guest.mgp(&["nodes", "join", &ticket]).await;
            assert!(joined.status.success(), "{joined:?}");
            linked(&nas, guest).await;
        }
        nas.mgp_json(&["shares", "add", "demo", "--to", "cluster"])
            .await;
        nas.mgp_json(&["grants", "add", "local@desk", "demo"]).await;
        shows(&desk, "nas__demo__test_simple_text").await;
        let folder = mallory.end(Signal::SIGTERM, DEADLINE).await;
        let siege = Self {
            resident: Usage::of(&[nas.pid()]).resident,
            key: folder.path().join("data/node.key"),
            _mallory: folder,
            nas,
            desk,
            peers,
        };
        siege.answers().await;
        Some(siege)
    }

    /// Where the node that is attacked listens.
    pub(super) async fn at(&self) -> String {
        listens(&self.nas).await
    }

    /// The path of the key.
    pub(super) fn key(&self) -> String {
        self.key.display().to_string()
    }

    /// A story, from its beginning to its end.
    pub(super) async fn plays(&self, story: &str, args: &[&str]) -> Value {
        played(&self.peers, story, args).await
    }

    /// A story during which good nodes call on.
    pub(super) async fn calls_during(&self, story: &str, args: &[&str]) -> Value {
        let mut attack = Process::start(story, &self.peers.hostile(story, args));
        attack.says("that it begins", DEADLINE, begins).await;
        let (mut calls, mut longest) = (0, Duration::ZERO);
        while attack.ended().is_none() {
            longest = longest.max(self.answers().await);
            calls += 1;
        }
        let status = attack.end(DEADLINE).await;
        let told = attack.stdout();
        println!("{story}: {calls} calls meanwhile, the longest took {longest:?}");
        assert!(status.success(), "{story}: {told} {}", attack.stderr());
        result(story, &told)
    }

    /// How long a call of a good node takes.
    pub(super) async fn answers(&self) -> Duration {
        let begun = Instant::now();
        let answered = call(&self.desk, "nas/demo:test_simple_text").await;
        let took = begun.elapsed();
        assert!(answered, "a good node is not answered");
        assert!(took < ANSWERS, "a good node is answered after {took:?}");
        took
    }

    /// After an attack: good nodes are answered, the kernel has not grown beyond a bound, and its log says what
    /// happened, once and not a thousand times.
    pub(super) async fn holds(&mut self, says: &str) {
        self.holds_within(says, GROWS).await;
    }

    /// The same, with a bound of its own.
    pub(super) async fn holds_within(&mut self, says: &str, grows: u64) {
        self.answers().await;
        let resident = Usage::of(&[self.nas.pid()]).resident;
        let grown = resident.saturating_sub(self.resident);
        println!("the kernel has grown by {} KiB", grown >> 10);
        assert!(grown < grows, "it has grown by {grown} bytes");
        let said = self.nas.process().stderr();
        assert!(said.contains(says), "its log does not say {says:?}: {said}");
        let lines = said.lines().count();
        assert!(lines < 300, "its log has {lines} lines: {said}");
        let plain = said.replace("\u{1b}[", "").chars().all(plain);
        assert!(
            plain,
            "its log has something that is not what it looks like"
        );
    }
}

/// Colours aside, what a log is made of.
fn plain(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c))
}

/// Where a kernel takes links.
pub(super) async fn listens(kernel: &Kernel) -> String {
    let id = kernel.mgp_json(&["nodes", "show"]).await;
    id["listens"].as_str().unwrap().to_owned()
}

/// The id of a node.
pub(super) async fn id(kernel: &Kernel) -> String {
    let id = kernel.mgp_json(&["nodes", "show"]).await;
    id["id"].as_str().unwrap().to_owned()
}

/// How one node sees another one.
pub(super) async fn seen(by: &Kernel, name: &str) -> Value {
    let status = by.mgp_json(&["cluster", "status"]).await;
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    let found = nodes.into_iter().find(|node| node["name"] == name);
    found.unwrap_or_else(|| panic!("{status:#}"))
}

/// The end of its audit log, as JSON.
pub(super) async fn audited(kernel: &Kernel, which: &[&str]) -> String {
    let find = [&["audit", "find", "--json"], which].concat();
    let found = kernel.mgp(&find).await;
    assert!(found.status.success(), "{found:?}");
    String::from_utf8_lossy(&found.stdout).into_owned()
}

/// What came of a story.
pub(super) async fn played(peers: &Peers, story: &str, args: &[&str]) -> Value {
    let output = peers.hostile(story, args).output(DEADLINE).await;
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{story}: {err}");
    result(story, &String::from_utf8_lossy(&output.stdout))
}

fn result(story: &str, told: &str) -> Value {
    let last = told.lines().last().unwrap_or_default();
    let told = serde_json::from_str(last).unwrap_or_else(|e| panic!("{story}: {e}: {told}"));
    println!("{story}: {told:#}");
    told
}

pub(super) fn begins(said: &str) -> Option<()> {
    said.starts_with(['b', 'h', 'c']).then_some(())
}

/// Every one of these was refused.
pub(super) fn none_taken<'a>(told: &'a Value, allowed: &[&str]) -> Vec<&'a str> {
    let all = told.as_object().unwrap();
    let taken = all.iter().filter(|(name, it)| {
        it.as_str().is_some_and(|it| it.starts_with("taken")) && !allowed.contains(&name.as_str())
    });
    taken.map(|(name, _)| name.as_str()).collect()
}

/// Waits until its log says so.
pub(super) async fn logged(kernel: &mut Kernel, words: &str) {
    wait_until(&format!("the log says {words:?}"), DEADLINE, async || {
        kernel.process().stderr().contains(words)
    })
    .await;
}
