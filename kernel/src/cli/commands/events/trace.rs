//! `mgp trace`: the messages of one server or one agent as they pass, and a file of them.

mod recording_file;

use std::time::Duration;

use mgp_engine::doors::nearest::nearest;
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::recorder::{Follow, Heard, MessageKind, MessageSender};
use mgp_protocol::mgp::names::Read;

use self::recording_file::RecordingFile;
use crate::cli::args::Trace;
use crate::cli::client::{CliContext, KernelClient, RequestObserver, names};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::cli::words::{bytes, plain};

/// What a kernel without a recorder is told of.
pub(super) const OLDER: &str = "the kernel that runs is older than this program and has no recorder; `mgp down` ends it, \
    and `mgp up` starts this one";

/// What servers and kernels mostly ask and tell each other, for who mistypes it.
const METHODS: [&str; 28] = [
    "completion/complete",
    "elicitation/create",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/tools/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "sampling/createMessage",
    "server/discover",
    "subscriptions/listen",
    "tasks/get",
    "tasks/result",
    "tools/call",
    "tools/list",
];

/// Carries it out.
pub(in crate::cli::commands) fn trace(context: &CliContext, typed: &Trace) -> Result<(), Failure> {
    let mut shown = ShownMessages {
        json: context.json,
        full: typed.full,
        file: None,
        whom: String::new(),
        left: typed.count,
        seen: 0,
        missed: 0,
    };
    let followed = context.with_kernel(async |client| follow(client, typed, &mut shown).await);
    let ended = match followed {
        // That is how it ends.
        Err(Failure::Interrupted) => Ok(()),
        other => other,
    };
    shown.farewell();
    ended
}

async fn follow(
    client: &mut KernelClient,
    typed: &Trace,
    shown: &mut ShownMessages,
) -> Result<(), Failure> {
    let wanted = wanted(client, typed).await?;
    shown.whom = match (&wanted.server, &wanted.agent) {
        (Some(server), _) => format!("server {server}"),
        (None, agent) => format!("agent {}", agent.as_deref().unwrap_or_default()),
    };
    if let Some(path) = &typed.save {
        shown.file = Some(RecordingFile::begin(path, typed.force, &wanted)?);
    }
    let following = client.request(Follow::METHOD, &wanted, shown);
    let ended = match typed.during_ms {
        None => following.await,
        Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), following).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure::Interrupted),
        },
    };
    // What was shown is not to be watched on until the kernel sees that nobody reads.
    client.take_back().await;
    match ended {
        Err(Failure::Refused { code, .. }) if code == METHOD_NOT_FOUND => {
            Err(Failure::Other(OLDER.into()))
        }
        Err(other) => Err(other),
        Ok(_) => {
            report("mgp: the kernel ended");
            Ok(())
        }
    }
}

async fn wanted(client: &mut KernelClient, typed: &Trace) -> Result<Follow, Failure> {
    let mut wanted = Follow {
        server: typed.server.clone(),
        agent: None,
        methods: typed.methods.clone(),
        tools: typed.tools.clone(),
        errors: typed.errors,
        bodies: typed.full || typed.save.is_some(),
    };
    if let Some(server) = &typed.server {
        names::server(client, server).await?;
        tools_are_there(client, server, &typed.tools).await?;
    }
    names::tell(&misspelt(&typed.methods));
    if let Some(agent) = &typed.agent {
        wanted.agent = names::agent(client, agent).await?;
    }
    Ok(wanted)
}

/// Says which of these tools the server does not offer now. It may later, so that they are followed all the same.
async fn tools_are_there(
    client: &mut KernelClient,
    server: &str,
    tools: &[String],
) -> Result<(), Failure> {
    for tool in tools {
        let place = Some(names::place(server, Some(tool)));
        let asked = Read {
            place,
            ..Read::default()
        };
        names::tell(&names::meant(client, &asked).await?.unknown);
    }
    Ok(())
}

/// Methods that are nearly one of MCP, in words. There may be any others.
fn misspelt(methods: &[String]) -> Vec<String> {
    let unknown = methods.iter().filter(|typed| !METHODS.contains(&&***typed));
    let near = unknown.filter_map(|typed| Some((typed, nearest(typed, METHODS)?)));
    near.map(|(typed, near)| format!("MCP has no method {typed}; did you mean {near}?"))
        .collect()
}

/// Shows each message as it comes, and keeps it.
struct ShownMessages {
    json: bool,
    full: bool,
    file: Option<RecordingFile>,
    whom: String,
    /// How many more are wanted.
    left: Option<u64>,
    seen: u64,
    missed: u64,
}

impl RequestObserver for ShownMessages {
    fn notified(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != Heard::METHOD {
            return Ok(());
        }
        let heard: Heard = serde_json::from_str(params)
            .map_err(|e| Failure::Other(format!("the kernel said something else: {e}")))?;
        self.heard(&heard, params)
    }
}

impl ShownMessages {
    fn heard(&mut self, heard: &Heard, written: &str) -> Result<(), Failure> {
        match heard.kind {
            MessageKind::Began => {
                report(format_args!(
                    "mgp: following {}; Ctrl-C ends",
                    plain(&self.whom)
                ));
                return Ok(());
            }
            MessageKind::Missed => self.missed += heard.missed,
            MessageKind::Request
            | MessageKind::Notification
            | MessageKind::Answer
            | MessageKind::Error
            | MessageKind::Unanswered
            | MessageKind::Unreadable => {}
        }
        if let Some(file) = &mut self.file {
            file.keep(written)?;
        }
        self.seen += u64::from(heard.kind != MessageKind::Missed);
        match self.json {
            true => say(written)?,
            false => self.show(heard)?,
        }
        match self.left.is_some_and(|left| self.seen >= left) {
            true => Err(Failure::Interrupted),
            false => Ok(()),
        }
    }

    fn show(&self, heard: &Heard) -> Result<(), Failure> {
        say(plain(&line(heard)))?;
        match heard.message.as_ref().filter(|_| self.full) {
            Some(message) => say(plain(&format!("  {}", message.get()))),
            None => Ok(()),
        }
    }

    /// What there was, on stderr: the messages may be read by a program.
    fn farewell(&mut self) {
        let Some(file) = self.file.take() else { return };
        let missed = match self.missed {
            0 => String::new(),
            many => format!(", {many} were missed"),
        };
        report(plain(&format!(
            "mgp: {} in {}{missed}",
            counted(self.seen),
            file.path().display()
        )));
    }
}

fn counted(many: u64) -> String {
    match many {
        1 => "1 message".into(),
        many => format!("{many} messages"),
    }
}

/// One line: when, from whom, what it is and about, which request, how long, how late.
fn line(heard: &Heard) -> String {
    let at = rfc3339_ms(heard.at_ms);
    if heard.kind == MessageKind::Missed {
        let many = match heard.missed {
            1 => "1 message was".to_owned(),
            many => format!("{many} messages were"),
        };
        return format!("{at}  {many} not shown: they came faster than they were taken");
    }
    let what = [&heard.method, &heard.about].map(|word| word.as_deref().unwrap_or_default());
    let what = what.join(" ");
    let id = heard.id.as_ref().map_or("", |id| id.get());
    let size = match (heard.kind, heard.too_long) {
        (MessageKind::Unanswered, _) => String::new(),
        (_, true) => format!("{}, too long to be shown", bytes(heard.bytes)),
        (_, false) => bytes(heard.bytes),
    };
    let took = heard.took_us.map(took).unwrap_or_default();
    let why = heard.why.as_deref().unwrap_or_default();
    let (whom, kind) = (whom(heard), kind(heard));
    let line = format!(
        "{at}  {whom:<11}  {kind:<12}  {:<28}  {id:<16}  {size:>8}  {took:>8}  {why}",
        what.trim_end()
    );
    line.trim_end().to_owned()
}

fn whom(heard: &Heard) -> &'static str {
    match heard.from {
        MessageSender::Kernel => "from kernel",
        MessageSender::Server => "from server",
        MessageSender::Agent => "from agent",
    }
}

fn kind(heard: &Heard) -> &'static str {
    match heard.kind {
        MessageKind::Request => "request",
        MessageKind::Notification => "notification",
        MessageKind::Answer if heard.failed => "tool error",
        MessageKind::Answer => "answer",
        MessageKind::Error => "error",
        MessageKind::Unanswered => "no answer",
        MessageKind::Unreadable => "unreadable",
        MessageKind::Missed | MessageKind::Began => "",
    }
}

/// A duration in its fitting unit: `420 us`, `3.1 ms`, `12 s`.
fn took(us: u64) -> String {
    match us {
        0..=999 => format!("{us} us"),
        1_000..=99_999 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        100_000..=9_999_999 => format!("{} ms", us / 1_000),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(json: &str) -> Heard {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_message_is_a_line() {
        let answer = heard(
            r#"{"at_ms":1000,"connection":1,"from":"server","kind":"answer","method":"tools/call","about":"echo","id":7,"bytes":41,"took_us":3142,"failed":true}"#,
        );
        assert_eq!(
            line(&answer),
            "1970-01-01T00:00:01.000Z  from server  tool error    tools/call echo               7                     41 B    3.1 ms"
        );
        let noise = heard(
            r#"{"at_ms":1000,"connection":1,"from":"server","kind":"unreadable","bytes":5,"why":"Parse error: x"}"#,
        );
        assert!(
            line(&noise).ends_with("5 B            Parse error: x"),
            "{}",
            line(&noise)
        );
        let missed = heard(
            r#"{"at_ms":1000,"connection":0,"from":"kernel","kind":"missed","bytes":0,"missed":142}"#,
        );
        assert_eq!(
            line(&missed),
            "1970-01-01T00:00:01.000Z  142 messages were not shown: they came faster than they were taken"
        );
    }

    #[test]
    fn a_method_that_is_nearly_one_is_said() {
        let typed = ["tools/call", "tool/call", "x/of-this-server"].map(str::to_owned);
        let said = misspelt(&typed);
        assert_eq!(
            said,
            ["MCP has no method tool/call; did you mean tools/call?"]
        );
    }

    #[test]
    fn a_duration_has_its_unit() {
        let said = [0, 999, 1_000, 99_999, 100_000, 9_999_999, 10_000_000].map(took);
        assert_eq!(
            said,
            [
                "0 us", "999 us", "1.0 ms", "99.9 ms", "100 ms", "9999 ms", "10 s"
            ]
        );
    }
}
