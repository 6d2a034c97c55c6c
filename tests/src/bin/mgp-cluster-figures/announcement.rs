//! What a node says of itself on the local network, as a program of others hears it: python-zeroconf, or avahi.

use std::time::Duration;

use mgp_tests::harness::Program;
use mgp_tests::harness::kernel::network::Network;
use mgp_tests::load::{Cell, Table};
use serde_json::json;

use crate::node::{Node, unite};
use crate::times::{MISSED, not_run};

const COLUMNS: &[&str] = &["what", "heard", "held"];
/// How long the listener may take, its start included.
const LISTENS: Duration = Duration::from_secs(40);
/// What is never said: the names of the server, of its tools, and of an agent.
const SECRETS: [&str; 4] = ["stock", "echo_0", "structured_echo", "alice"];

/// Prints the first service it hears of within ten seconds, with all that is said of it.
const LISTENER: &str = r#"
import sys, time
from zeroconf import IPVersion, ServiceBrowser, Zeroconf
heard = {}
class Listener:
    def add_service(self, zc, kind, name):
        heard[name] = zc.get_service_info(kind, name, 3000)
    def update_service(self, zc, kind, name): pass
    def remove_service(self, zc, kind, name): pass
zc = Zeroconf(interfaces=[sys.argv[1]], ip_version=IPVersion.V4Only)
ServiceBrowser(zc, "_mgp._udp.local.", Listener())
end = time.monotonic() + 10
while time.monotonic() < end and len(heard) < 2:
    time.sleep(0.1)
for name, info in sorted(heard.items()):
    print(name, info and (info.server, info.port, info.parsed_addresses(), info.properties))
zc.close()
"#;

pub(crate) async fn table() -> Table {
    let listener = listener().await;
    let rows = match listener {
        Err(why) => vec![not_run("what another program hears", &why, COLUMNS.len())],
        Ok(listener) => heard(&listener).await,
    };
    Table {
        title: "What is said on the local network",
        columns: COLUMNS,
        rows,
    }
}

/// Python where it has zeroconf: that of `MGP_PYTHON`, or the first one.
async fn listener() -> Result<String, String> {
    let python = std::env::var("MGP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let shell = "command -v \"$0\" >&2 && \"$0\" -c 'import zeroconf'";
    let tried = Program::new("sh", ["-c", shell, &python])
        .output(LISTENS)
        .await;
    if tried.status.success() {
        Ok(python)
    } else {
        Err("zeroconf for Python is missing: `pip install zeroconf`, or name a Python that has it in MGP_PYTHON".to_owned())
    }
}

async fn heard(python: &str) -> Vec<Vec<Cell>> {
    let network = Network::new(3).expect("a network was made a moment ago");
    let stock = Program::fixture(&["--tools", "3"]).entry("stock");
    let mut nodes = [
        Node::start(&network, 0, "nas", &stock).await,
        Node::start(&network, 1, "desk", "").await,
    ];
    nodes[0].kernel.connected(&["stock"]).await;
    unite(&mut nodes).await;
    let [nas, desk] = &mut nodes;
    nas.ask(
        "mgp/kernel/shares/add",
        json!({"server": "stock", "to": "cluster"}),
    )
    .await;
    let added = nas.kernel.mgp(&["agents", "add", "alice"]).await;
    assert!(added.status.success(), "{added:?}");
    for node in [&mut *nas, &mut *desk] {
        node.ask("mgp/kernel/lan/on", json!({})).await;
    }
    let mut words = network.running(2, python);
    let program = words.remove(0);
    words.extend([
        "-c".to_owned(),
        LISTENER.to_owned(),
        network.address(2).to_string(),
    ]);
    let told = Program::new(program, words).output(LISTENS).await;
    let said = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    let services = said.lines().count();
    let leaks: Vec<&str> = SECRETS
        .into_iter()
        .filter(|secret| said.contains(secret))
        .collect();
    let held = |held: bool| Cell::from(if held { "yes" } else { MISSED });
    let shown = said.replace('\n', "; ");
    let errors = String::from_utf8_lossy(&told.stderr)
        .trim()
        .replace('\n', " ");
    let shown = if services == 0 { errors } else { shown };
    vec![
        vec![
            "two nodes that were switched on".into(),
            shown.into(),
            held(services == 2),
        ],
        vec![
            "names of servers, tools and agents in that".into(),
            leaks.join(", ").into(),
            held(services > 0 && leaks.is_empty()),
        ],
    ]
}
