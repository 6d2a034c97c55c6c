//! Pending entries are announced: at a webhook, by a program, on the desktop.

use std::fs;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dbus::Message;
use dbus::blocking::Connection;
use dbus::channel::MatchingReceiver;
use dbus::message::MatchRule;
use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, Kernel, Process, Program, wait_until};
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const OPEN_DOOR: &str = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";
const SECRET: &str = "0123456789abcdef0123";

/// A server that waits until its permissions are approved.
fn needy() -> String {
    let capability = json!({"version": "0.2.0", "extensions": ["security"],
        "permissions_required": ["network.outbound"]});
    Program::fixture(&["--mgp", &capability.to_string()]).entry("needy")
}

/// A request that a webhook got: its head in lower case, and its body.
type Received = (String, String);

/// A webhook that is unavailable at first.
struct Webhook {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Webhook {
    async fn start(failures: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let all = received.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = serve(stream, &all, failures).await;
            }
        });
        Self {
            url,
            received,
            serving,
        }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, all: &Mutex<Vec<Received>>, failures: usize) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let count = {
        let mut all = all.lock().unwrap();
        all.push((head, String::from_utf8(body).ok()?));
        all.len()
    };
    let status = if count <= failures {
        "503 Service Unavailable"
    } else {
        "204 No Content"
    };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.ok()
}

fn header<'h>(head: &'h str, name: &str) -> &'h str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(it, _)| it.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("{name}: {head}")).1
}

/// What the receiver of Standard Webhooks does.
fn verify((head, body): &Received) {
    let (id, at) = (
        header(head, "webhook-id"),
        header(head, "webhook-timestamp"),
    );
    let signature = header(head, "webhook-signature")
        .strip_prefix("v1,")
        .unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = STANDARD.decode(signature).unwrap();
    hmac::verify(&key, format!("{id}.{at}.{body}").as_bytes(), &tag).unwrap();
}

/// EXT-151, EXT-152, EXT-153
#[tokio::test]
async fn a_webhook_gets_each_pending_entry_signed_and_again_after_a_failure() {
    let webhook = Webhook::start(1).await;
    let notify = format!(
        "[notify]\nwebhook = \"{}\"\nwebhook_secret = \"{SECRET}\"\n",
        webhook.url
    );
    let kernel = Kernel::with_config(&format!("{OPEN_DOOR}{notify}{}", needy())).await;
    wait_until("the second attempt", DEADLINE, async || {
        webhook.received().len() == 2
    })
    .await;
    let received = webhook.received();
    received.iter().for_each(verify);
    let [first, second] = [0, 1].map(|at| serde_json::from_str::<Value>(&received[at].1).unwrap());
    assert_eq!(first["entries"], second["entries"]);
    let ids = [0, 1].map(|at| header(&received[at].0, "webhook-id").to_owned());
    assert_eq!(ids[0], ids[1], "a receiver tells that it is the same");
    let entry = &second["entries"][0];
    assert_eq!(second["type"], "mgp.pending");
    assert_eq!(
        (&entry["kind"], &entry["server"]),
        (&json!("permissions"), &json!("needy"))
    );
    let id = entry["id"].as_str().unwrap();
    assert_eq!(entry["command"], format!("mgp approve {id}"));

    kernel.mgp(&["approve", id]).await;
    kernel.connected(&["needy"]).await;
    let listed = kernel.mgp_json(&["pending"]).await;
    assert_eq!(listed["pending"], json!([]));
    assert_eq!(webhook.received().len(), 2, "a decision is no news");
}

/// EXT-151
#[tokio::test]
async fn a_program_is_started_for_a_pending_entry() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("notice.sh");
    let out = folder.path().join("out");
    let text = format!(
        "printf '%s\\n' \"$1\" > {0}.part\nprintf '%s' \"$MGP_NOTICE\" >> {0}.part\nmv {0}.part {0}\n",
        out.display()
    );
    fs::write(&script, text).unwrap();
    let notify = format!(
        "[notify]\ncommand = [\"sh\", {:?}, \"{{text}}\"]\n",
        script.display().to_string()
    );
    let _kernel = Kernel::with_config(&format!("{OPEN_DOOR}{notify}{}", needy())).await;
    wait_until("the program ran", DEADLINE, async || out.exists()).await;
    let written = fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert!(
        lines[0].starts_with("1 entry waits for you at "),
        "{written}"
    );
    assert!(
        lines[1].contains("needy") && lines[1].contains("(mgp approve "),
        "{written}"
    );
    let notice: Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!(notice["waiting"], 1);
}

/// The title and the body of the first notification that a desktop on this bus is asked to show.
fn desktop(address: &str, shown: mpsc::Sender<(String, String)>) {
    let mut channel = dbus::channel::Channel::open_private(address).unwrap();
    channel.register().unwrap();
    let bus = Connection::from(channel);
    bus.request_name("org.freedesktop.Notifications", false, true, false)
        .unwrap();
    bus.start_receive(
        MatchRule::new_method_call(),
        Box::new(move |message: Message, bus: &Connection| {
            if message.member().is_some_and(|member| &*member == "Notify") {
                let read: (String, u32, String, String, String) = message.read5().unwrap();
                let _ = shown.send((read.3, read.4));
                dbus::channel::Sender::send(bus, message.return_with_args((1u32,))).unwrap();
            }
            true
        }),
    );
    let end = std::time::Instant::now() + DEADLINE;
    while std::time::Instant::now() < end {
        if bus.process(Duration::from_millis(50)).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn the_desktop_shows_a_pending_entry_without_markup_of_servers() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = |folder: std::path::PathBuf| folder.join("dbus-daemon").exists();
    if !std::env::split_paths(&path).any(is_installed) {
        eprintln!("SKIPPED: no session bus here: dbus-daemon is not installed");
        return;
    }
    let words = ["--session", "--nofork", "--print-address=1"].map(str::to_owned);
    let mut bus = Process::start("bus", &Program::new("dbus-daemon", words));
    let address = bus
        .says("its address", DEADLINE, |said| {
            let line = said.lines().find(|line| line.starts_with("unix:"))?;
            said.ends_with('\n').then(|| line.to_owned())
        })
        .await;
    let (sender, shown) = mpsc::channel();
    let at = address.clone();
    std::thread::spawn(move || desktop(&at, sender));
    let capability = json!({"version": "0.2.0", "extensions": ["security"],
        "permissions_required": ["<b>all</b>"]});
    let bold = Program::fixture(&["--mgp", &capability.to_string()]).entry("bold");
    let config = format!("{OPEN_DOOR}[notify]\ndesktop = true\n{bold}");
    let variables = [("DBUS_SESSION_BUS_ADDRESS", &*address)];
    let _kernel = Kernel::with_environment(&config, &variables).await;
    let waiting = tokio::task::spawn_blocking(move || shown.recv_timeout(DEADLINE));
    let shown = within("a notification", DEADLINE, waiting).await;
    let (title, body) = shown.unwrap().unwrap();
    assert!(title.starts_with("1 entry waits for you at "), "{title}");
    assert!(
        body.contains("bold") && body.contains("&lt;b&gt;all") && !body.contains("<b>"),
        "{body}"
    );
}
