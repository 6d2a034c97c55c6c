//! What was acknowledged is there after `kill -9`, and nothing is there by half.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use mgp_tests::harness::{Agent, DEADLINE, Kernel, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// Kills in all, and kernels side by side.
const KILLS: usize = 1000;
const KERNELS: usize = 8;
/// Lives of a kernel on one folder: of more, each start reads and verifies what all before it wrote.
const LIVES: usize = 25;
/// The latest moment of a kill after the load began, in microseconds.
const LATEST_US: u64 = 150_000;
/// The kills end here on a machine that is too slow for all of them; how many there were is told.
const PATIENCE: Duration = Duration::from_secs(225);
/// Kills without which nothing is shown.
const FEWEST: usize = 200;
/// Decisions under way at once at one kernel, so that they share syncs.
const AT_ONCE: usize = 4;
/// Entries that one kernel's load is about.
const PLACES: u64 = 12;

const QUIET: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n[log]\nlevel = \"warn\"\n";

/// A small generator: what is random in a test is told by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// What is known of one entry: what was acknowledged last, and what was asked for and not answered.
#[derive(Debug, Default, Clone)]
struct Known {
    /// The permission in force and the id of its grant, when there is one.
    acknowledged: Option<(String, String)>,
    /// Asked for when the kernel was killed: the permission, or that it be taken back.
    open: Option<Option<String>>,
}

/// One kernel through many lives.
struct Lives {
    name: String,
    random: Random,
    places: BTreeMap<u64, Known>,
    told: Told,
}

/// What happened in all.
#[derive(Debug, Default)]
struct Told {
    kills: usize,
    acknowledged: usize,
    /// Kills with decisions under way, and how many decisions those were.
    amid: usize,
    open: usize,
    /// Of those, decisions that were found to hold.
    held: usize,
}

impl Told {
    fn and(self, other: Self) -> Self {
        Self {
            kills: self.kills + other.kills,
            acknowledged: self.acknowledged + other.acknowledged,
            amid: self.amid + other.amid,
            open: self.open + other.open,
            held: self.held + other.held,
        }
    }
}

/// MGP-076, MGP-082: at random moments under a load of grants and revokes the kernel is killed. What
/// was acknowledged holds afterwards, what was not is there whole or not at all, the journal and the
/// audit chain are whole, and each operation has its record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kill_loses_or_halves_a_decision() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let until = Instant::now() + PATIENCE;
    let all = (0..KERNELS).map(|number| {
        let lives = Lives {
            name: format!("kernel {number} of seed {seed}"),
            random: Random(seed.wrapping_mul(2 * number as u64 + 1) | 1),
            places: BTreeMap::new(),
            told: Told::default(),
        };
        lives.live(KILLS / KERNELS, until)
    });
    let began = Instant::now();
    let all = join_all(all).await.into_iter();
    let told = all.fold(Told::default(), Told::and);
    println!(
        "{} kills in {} s, {} of them amid {} decisions, of which {} hold; {} decisions acknowledged before, none lost",
        told.kills,
        began.elapsed().as_secs(),
        told.amid,
        told.open,
        told.held,
        told.acknowledged,
    );
    assert!(told.kills >= FEWEST, "only {told:?}");
    assert!(
        told.acknowledged > 0 && told.amid > 0,
        "hardly any load: {told:?}"
    );
}

impl Lives {
    async fn live(mut self, kills: usize, until: Instant) -> Told {
        let is_over = |told: &Told| told.kills >= kills || Instant::now() >= until;
        while !is_over(&self.told) {
            self.places.clear();
            let mut kernel = Kernel::with_config(QUIET).await;
            let mut owner = Owner::at(&kernel.socket()).await;
            for _ in 0..LIVES {
                self.load(owner).await;
                let folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
                self.told.kills += 1;
                kernel = Kernel::again(folder).await;
                owner = Owner::at(&kernel.socket()).await;
                self.hold(&mut owner).await;
                if is_over(&self.told) {
                    break;
                }
            }
            audited(&kernel, &self.name).await;
        }
        self.told
    }

    /// Grants and revokes until a random moment, which is the kernel's last.
    async fn load(&mut self, mut owner: Owner) {
        let moment = Duration::from_micros(self.random.next(LATEST_US));
        let load = async {
            let mut asked: BTreeMap<u64, (u64, Option<String>)> = BTreeMap::new();
            loop {
                while asked.len() < AT_ONCE {
                    let at = self.random.next(PLACES);
                    if asked.values().any(|(place, _)| *place == at) {
                        continue;
                    }
                    let (method, params, wanted) = self.decision(at);
                    self.places.entry(at).or_default().open = Some(wanted.clone());
                    asked.insert(owner.ask(method, &params).await, (at, wanted));
                }
                let answer = owner.answer().await;
                let id = answer["id"].as_u64().unwrap_or_default();
                if let Some((at, wanted)) = asked.remove(&id) {
                    self.note(at, wanted, &answer);
                }
            }
        };
        let _ = tokio::time::timeout(moment, load).await;
        let open = self.places.values().filter(|known| known.open.is_some());
        let open = open.count();
        self.told.open += open;
        self.told.amid += usize::from(open > 0);
    }

    /// A grant, a denial, or a revoke of this entry.
    fn decision(&mut self, at: u64) -> (&'static str, Value, Option<String>) {
        let mut params = entry(at);
        let wanted = ["allow", "deny", ""][self.random.next(3) as usize];
        if wanted.is_empty() {
            return ("mgp/access/revoke", params, None);
        }
        params["permission"] = json!(wanted);
        ("mgp/access/grant", params, Some(wanted.to_owned()))
    }

    fn note(&mut self, at: u64, wanted: Option<String>, answer: &Value) {
        let known = self.places.entry(at).or_default();
        let result = &answer["result"];
        assert!(result.is_object(), "{}: {answer}", self.name);
        let before: Vec<&str> = known
            .acknowledged
            .iter()
            .map(|(_, id)| id.as_str())
            .collect();
        let ended = result.get("replaced").or_else(|| result.get("revoked"));
        let ended: Vec<&str> = ended
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(ended, before, "{}: what ends is what was there", self.name);
        let id = |wanted| (wanted, result["grant_id"].as_str().unwrap().to_owned());
        known.acknowledged = wanted.map(id);
        known.open = None;
        self.told.acknowledged += 1;
    }

    /// Holds what is there against what is known.
    async fn hold(&mut self, owner: &mut Owner) {
        owner.ask("mgp/access/list", &json!({})).await;
        let listed = owner.answer().await["result"].clone();
        let mut there: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for entry in listed["entries"].as_array().unwrap() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let place = format!(
                "{}/{}/{}",
                text("agent_id"),
                text("server_id"),
                text("tool_name")
            );
            there
                .entry(place)
                .or_default()
                .push((text("permission"), text("grant_id")));
        }
        for (at, known) in &mut self.places {
            let of = entry(*at);
            let text = |name: &str| of[name].as_str().unwrap_or_default();
            let place = format!(
                "{}/{}/{}",
                text("agent_id"),
                text("server_id"),
                text("tool_name")
            );
            let found = there.remove(&place).unwrap_or_default();
            assert!(
                found.len() <= 1,
                "{}: half a replacement: {found:?}",
                self.name
            );
            let found = found.into_iter().next();
            let open = known.open.take();
            let as_before = found == known.acknowledged;
            let as_asked =
                open.is_some_and(|asked| asked == found.as_ref().map(|(p, _)| p.clone()));
            assert!(
                as_before || as_asked,
                "{}: {place} is {found:?} and was acknowledged as {:?} after {} kills",
                self.name,
                known.acknowledged,
                self.told.kills,
            );
            self.told.held += usize::from(as_asked && !as_before);
            known.acknowledged = found;
        }
        assert!(
            there.is_empty(),
            "{}: nobody asked for {there:?}",
            self.name
        );
    }
}

/// One of the entries the load is about: of a server or of a tool.
fn entry(at: u64) -> Value {
    let (agent, server) = (format!("agent.{}", at % 3), format!("server{}", at % 2));
    match at % 4 {
        0 => json!({"entry_type": "server_grant", "agent_id": agent, "server_id": server}),
        tool => json!({"entry_type": "tool_grant", "agent_id": agent, "server_id": server,
            "tool_name": format!("tool{}", tool + at)}),
    }
}

/// The owner at the kernel's socket, who may be cut off at any byte.
struct Owner {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
    last: u64,
}

impl Owner {
    async fn at(socket: &Path) -> Self {
        let (reader, writer) = UnixStream::connect(socket).await.unwrap().into_split();
        let lines = BufReader::new(reader).lines();
        let mut owner = Self {
            lines,
            writer,
            last: 0,
        };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "owner", "version": "1"}});
        owner.ask("initialize", &hello).await;
        owner.answer().await;
        owner
    }

    /// Asks without waiting; gives the id.
    async fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        let line = format!("{request}\n");
        self.writer.write_all(line.as_bytes()).await.unwrap();
        self.last
    }

    /// The next that comes.
    async fn answer(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("an answer");
        serde_json::from_str(&line).unwrap()
    }
}

async fn owner(kernel: &Kernel) -> Agent {
    let mut agent = Agent::over_socket(&kernel.socket()).await;
    agent.initialize("2025-11-25", "{}").await.result();
    agent
}

/// The audit chain is whole, and each operation of the journal has exactly one record.
async fn audited(kernel: &Kernel, name: &str) {
    chained(kernel.folder(), name);
    let mut places = places(kernel.folder());
    places.sort_unstable();
    let all: Vec<u64> = (0..places.len() as u64).collect();
    assert_eq!(places, all, "{name}: each operation has one record");
    assert!(!places.is_empty());
}

/// Each record of the log is as it was written, and names the one before it.
fn chained(folder: &Path, name: &str) {
    let mut before = "0".repeat(64);
    for line in records(folder) {
        let (body, tail) = line.rsplit_once(",\"hash\":\"").unwrap();
        let mut hash = blake3::Hasher::new_derive_key("mgp 2026-11 audit record");
        hash.update(body.as_bytes());
        let hash = hash.finalize().to_hex();
        assert!(tail.starts_with(&*hash), "{name}: {line}");
        assert!(
            body.contains(&format!("\"prev\":\"{before}\"")),
            "{name}: {line}"
        );
        before = hash.to_string();
    }
}

/// The lines of the audit log.
fn records(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder.join("data/audit")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_unstable();
    let texts = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The places of all decisions in the audit log.
fn places(folder: &Path) -> Vec<u64> {
    let of = |line: String| {
        let record: Value = serde_json::from_str(&line).unwrap();
        let event = &record["event"];
        let decided = event["event_type"].as_str().unwrap().starts_with("ACCESS_");
        decided.then(|| event["details"]["operation"].as_u64().unwrap())
    };
    records(folder).into_iter().filter_map(of).collect()
}

/// A kernel with three grants, killed.
async fn killed_with_three() -> TempDir {
    let kernel = Kernel::with_config(QUIET).await;
    let mut agent = owner(&kernel).await;
    for at in 0..3 {
        let mut params = entry(at);
        params["permission"] = json!("deny");
        agent.request("mgp/access/grant", params).await.result();
    }
    kernel.end(Signal::SIGKILL, DEADLINE).await
}

/// MGP-082: a tail that was never finished is cut off and told of; what stands before it holds.
#[tokio::test]
async fn a_torn_tail_of_the_grants_is_cut_off_and_named() {
    let folder = killed_with_three().await;
    let journal = folder.path().join("data/grants.journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    let whole = bytes.len();
    bytes.extend_from_within(..40);
    std::fs::write(&journal, &bytes).unwrap();
    let mut kernel = Kernel::again(folder).await;
    let told = format!("from byte {whole} on it holds");
    wait_until("the cut is told", DEADLINE, async || {
        kernel.process().stderr().contains(&told)
    })
    .await;
    let mut agent = owner(&kernel).await;
    let listed = agent.request("mgp/access/list", json!({})).await.result();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 3);
}

/// MGP-082: a last entry of which sectors never came to the disk was not acknowledged: it is cut off, and
/// that is written down. The same of one that the audit log knows of is lost, and stops the start; nothing
/// is changed then.
#[tokio::test]
async fn a_last_entry_torn_at_a_page_edge_is_cut_unless_the_log_knows_of_it() {
    let folder = killed_with_three().await;
    // Its witness knows of it, too.
    for name in ["files.witness", "files.witness.2"] {
        std::fs::remove_file(folder.path().join("data").join(name)).unwrap();
    }
    let journal = folder.path().join("data/grants.journal");
    let known = std::fs::read(&journal).unwrap();
    let edge = known.len() - known.len() % 512;
    assert!(edge < known.len(), "the last entry crosses the edge");
    let mut hurt = known.clone();
    hurt[edge..].fill(0);
    std::fs::write(&journal, &hurt).unwrap();
    let refused = refused(folder.path()).await;
    assert!(refused.contains("it has 2 operations"), "{refused}");
    assert_eq!(std::fs::read(&journal).unwrap(), hurt);
    // A fourth that was being written, whose first sector never came to the disk.
    let entry = known.len() / 3;
    let mut torn = known.clone();
    torn.extend_from_within(..entry);
    let first_edge = known.len().next_multiple_of(512);
    torn[known.len()..first_edge].fill(0);
    std::fs::write(&journal, &torn).unwrap();
    let mut kernel = Kernel::again(folder).await;
    let told = format!("from byte {} on it holds", known.len());
    wait_until("the cut is told", DEADLINE, async || {
        kernel.process().stderr().contains(&told)
    })
    .await;
    assert_eq!(std::fs::read(&journal).unwrap(), known);
    let written = records(kernel.folder());
    let said = |line: &&String| line.contains("mgp.state_damaged") && line.contains(&told);
    assert_eq!(written.iter().filter(said).count(), 1);
    let mut agent = owner(&kernel).await;
    let listed = agent.request("mgp/access/list", json!({})).await.result();
    assert_eq!(listed["entries"].as_array().unwrap().len(), 3);
}

/// MGP-082: a changed byte stops the start, with the file, the place and what to do; nothing in the
/// file is touched.
#[tokio::test]
async fn a_flipped_byte_in_the_grants_stops_the_start_and_is_named() {
    let folder = killed_with_three().await;
    let journal = folder.path().join("data/grants.journal");
    let whole = std::fs::read(&journal).unwrap();
    for (at, entry) in [(10, 1), (whole.len() / 2, 2), (whole.len() - 1, 3)] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&journal, &bytes).unwrap();
        let refused = refused(folder.path()).await;
        for said in [
            "grants.journal",
            &format!("entry {entry}, at byte"),
            "truncate -s",
        ] {
            assert!(refused.contains(said), "byte {at}: {refused}");
        }
        assert_eq!(std::fs::read(&journal).unwrap(), bytes);
    }
}

/// MGP-082: a journal that ends before what the audit log knows of has lost what was acknowledged.
#[tokio::test]
async fn shortened_journal_is_distinguished_from_a_torn_write() {
    let folder = killed_with_three().await;
    let journal = folder.path().join("data/grants.journal");
    let whole = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &whole[..whole.len() - 5]).unwrap();
    let refused = refused(folder.path()).await;
    for said in ["grants.journal", "it has 2 operations", "put a whole copy"] {
        assert!(refused.contains(said), "{refused}");
    }
}

/// MGP-076: a decision that was on disk and not in the audit log when the kernel was killed is
/// written down at the next start, as recovered.
#[tokio::test]
async fn a_decision_without_a_record_gets_one() {
    let folder = killed_with_three().await;
    let log = folder.path().join("data/audit/00000001.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines
        .iter()
        .position(|line| line.contains("ACCESS_GRANTED"))
        .unwrap();
    let kept: String = lines[..=first]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&log, kept).unwrap();
    for head in ["data/audit.head", "data/node.witness"] {
        std::fs::remove_file(folder.path().join(head)).unwrap();
    }
    let kernel = Kernel::again(folder).await;
    assert_eq!(places(kernel.folder()), [0, 1, 2]);
    let text = std::fs::read_to_string(kernel.folder().join("data/audit/00000001.jsonl")).unwrap();
    assert_eq!(text.matches("\"recovered\":true").count(), 2, "{text}");
}

/// What a kernel says that does not start on this folder.
async fn refused(folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let up = mgp_tests::harness::Program::ours("mgp", ["up", "--config"]).arg(at("mgp.toml"));
    let up = [("MGP_SOCKET", at("mgp.sock")), ("MGP_DATA_DIR", at("data"))]
        .into_iter()
        .fold(up, |up, (name, value)| up.env(name, value));
    let refused = up.output(DEADLINE).await;
    assert_eq!(refused.status.code(), Some(1));
    String::from_utf8_lossy(&refused.stderr).replace('\n', " ")
}
