//! `mgp trace`: displays and records the messages of one server or one agent.

mod recording_file;

use std::time::Duration;

use mgp_engine::doors::suggestions::nearest;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::recorder::{Follow, Heard, MessageKind, MessageSender};
use mgp_protocol::mgp::names::Read;

use self::recording_file::RecordingFile;
use crate::cli::args::Trace;
use crate::cli::client::{CliContext, KernelClient, RequestObserver, name_resolution};
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::{format_bytes, sanitize_line};

/// The error for a kernel without a recorder.
pub(super) const NO_RECORDER: &str = "the kernel that runs is older than this program and has no recorder; `mgp down` ends it, \
    and `mgp up` starts this one";

/// The usual methods of MCP, for suggestions.
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

pub(in crate::cli::commands) fn trace(context: &CliContext, typed: &Trace) -> Result<(), Failure> {
    let mut printer = MessagePrinter {
        json: context.json,
        full: typed.full,
        file: None,
        subject: String::new(),
        remaining: typed.count,
        message_count: 0,
        missed_count: 0,
    };
    let followed = context.with_kernel(async |client| follow(client, typed, &mut printer).await);
    let ended = match followed {
        // The usual end of this command.
        Err(Failure::Interrupted) => Ok(()),
        other => other,
    };
    printer.print_totals();
    ended
}

async fn follow(
    client: &mut KernelClient,
    typed: &Trace,
    printer: &mut MessagePrinter,
) -> Result<(), Failure> {
    let follow_request = follow_params(client, typed).await?;
    printer.subject = match (&follow_request.server, &follow_request.agent) {
        (Some(server), _) => format!("server {server}"),
        (None, agent) => format!("agent {}", agent.as_deref().unwrap_or_default()),
    };
    if let Some(path) = &typed.save {
        printer.file = Some(RecordingFile::create(path, typed.force, &follow_request)?);
    }
    let following = client.request(Follow::METHOD, &follow_request, printer);
    let ended = match typed.during_ms {
        None => following.await,
        Some(ms) => match tokio::time::timeout(Duration::from_millis(ms), following).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure::Interrupted),
        },
    };
    // Ends the kernel's recording at once.
    client.cancel_last().await;
    match ended {
        Err(Failure::ErrorResponse { code, .. }) if code == METHOD_NOT_FOUND => {
            Err(Failure::Other(NO_RECORDER.into()))
        }
        Err(other) => Err(other),
        Ok(_) => {
            print_error("mgp: the kernel ended");
            Ok(())
        }
    }
}

async fn follow_params(client: &mut KernelClient, typed: &Trace) -> Result<Follow, Failure> {
    let mut follow_request = Follow {
        server: typed.server.clone(),
        agent: None,
        methods: typed.methods.clone(),
        tools: typed.tools.clone(),
        errors: typed.errors,
        bodies: typed.full || typed.save.is_some(),
    };
    if let Some(server) = &typed.server {
        name_resolution::resolve_server(client, server).await?;
        warn_unknown_tools(client, server, &typed.tools).await?;
    }
    name_resolution::print_notes(&misspelled_methods(&typed.methods));
    if let Some(agent) = &typed.agent {
        follow_request.agent = name_resolution::resolve_agent(client, agent).await?;
    }
    Ok(follow_request)
}

/// Notes which of these tools the server does not offer now. It may offer them later, so they are traced anyway.
async fn warn_unknown_tools(
    client: &mut KernelClient,
    server: &str,
    tools: &[String],
) -> Result<(), Failure> {
    for tool in tools {
        let place = Some(name_resolution::render_target(server, Some(tool)));
        let query = Read {
            place,
            ..Read::default()
        };
        name_resolution::print_notes(&name_resolution::resolve(client, &query).await?.unknown);
    }
    Ok(())
}

/// Notes methods that are similar to one of MCP. Others are possible.
fn misspelled_methods(methods: &[String]) -> Vec<String> {
    let unknown = methods.iter().filter(|typed| !METHODS.contains(&&***typed));
    let near = unknown.filter_map(|typed| Some((typed, nearest(typed, METHODS)?)));
    near.map(|(typed, near)| format!("MCP has no method {typed}; did you mean {near}?"))
        .collect()
}

/// Prints and records each message.
struct MessagePrinter {
    json: bool,
    full: bool,
    file: Option<RecordingFile>,
    subject: String,
    /// How many more messages are wanted.
    remaining: Option<u64>,
    message_count: u64,
    missed_count: u64,
}

impl RequestObserver for MessagePrinter {
    fn on_notification(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        if method != Heard::METHOD {
            return Ok(());
        }
        let heard: Heard = serde_json::from_str(params)
            .map_err(|e| Failure::Other(format!("the kernel said something else: {e}")))?;
        self.record(&heard, params)
    }
}

impl MessagePrinter {
    fn record(&mut self, heard: &Heard, written: &str) -> Result<(), Failure> {
        match heard.kind {
            MessageKind::Began => {
                print_error(format_args!(
                    "mgp: following {}; Ctrl-C ends",
                    sanitize_line(&self.subject)
                ));
                return Ok(());
            }
            MessageKind::Missed => self.missed_count += heard.missed,
            MessageKind::Request
            | MessageKind::Notification
            | MessageKind::Answer
            | MessageKind::Error
            | MessageKind::Unanswered
            | MessageKind::Unreadable => {}
        }
        if let Some(file) = &mut self.file {
            file.append(written)?;
        }
        self.message_count += u64::from(heard.kind != MessageKind::Missed);
        if self.json {
            print_line(written)?
        } else {
            self.show(heard)?
        }
        if self
            .remaining
            .is_some_and(|left| self.message_count >= left)
        {
            Err(Failure::Interrupted)
        } else {
            Ok(())
        }
    }

    fn show(&self, heard: &Heard) -> Result<(), Failure> {
        print_line(sanitize_line(&render_message(heard)))?;
        match heard.message.as_ref().filter(|_| self.full) {
            Some(message) => print_line(sanitize_line(&format!("  {}", message.get()))),
            None => Ok(()),
        }
    }

    /// Prints totals on stderr: stdout may be read by a program.
    fn print_totals(&mut self) {
        let Some(file) = self.file.take() else { return };
        let missed = match self.missed_count {
            0 => String::new(),
            many => format!(", {many} were missed"),
        };
        print_error(sanitize_line(&format!(
            "mgp: {} in {}{missed}",
            render_count(self.message_count),
            file.path().display()
        )));
    }
}

fn render_count(many: u64) -> String {
    match many {
        1 => "1 message".into(),
        many => format!("{many} messages"),
    }
}

/// Time, direction, kind and subject, request, duration and delay in one line.
fn render_message(heard: &Heard) -> String {
    let at = render_rfc3339_ms(heard.at_ms);
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
        (_, true) => format!("{}, too long to be shown", format_bytes(heard.bytes)),
        (_, false) => format_bytes(heard.bytes),
    };
    let took = heard.took_us.map(format_micros).unwrap_or_default();
    let why = heard.why.as_deref().unwrap_or_default();
    let (whom, kind) = (direction_label(heard), message_kind(heard));
    let line = format!(
        "{at}  {whom:<11}  {kind:<12}  {:<28}  {id:<16}  {size:>8}  {took:>8}  {why}",
        what.trim_end()
    );
    line.trim_end().to_owned()
}

fn direction_label(heard: &Heard) -> &'static str {
    match heard.from {
        MessageSender::Kernel => "from kernel",
        MessageSender::Server => "from server",
        MessageSender::Agent => "from agent",
    }
}

fn message_kind(heard: &Heard) -> &'static str {
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
fn format_micros(us: u64) -> String {
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
            render_message(&answer),
            "1970-01-01T00:00:01.000Z  from server  tool error    tools/call echo               7                     41 B    3.1 ms"
        );
        let noise = heard(
            r#"{"at_ms":1000,"connection":1,"from":"server","kind":"unreadable","bytes":5,"why":"Parse error: x"}"#,
        );
        assert!(
            render_message(&noise).ends_with("5 B            Parse error: x"),
            "{}",
            render_message(&noise)
        );
        let missed = heard(
            r#"{"at_ms":1000,"connection":0,"from":"kernel","kind":"missed","bytes":0,"missed":142}"#,
        );
        assert_eq!(
            render_message(&missed),
            "1970-01-01T00:00:01.000Z  142 messages were not shown: they came faster than they were taken"
        );
    }

    #[test]
    fn misspelled_methods_are_reported() {
        let typed = ["tools/call", "tool/call", "x/of-this-server"].map(str::to_owned);
        let said = misspelled_methods(&typed);
        assert_eq!(
            said,
            ["MCP has no method tool/call; did you mean tools/call?"]
        );
    }

    #[test]
    fn a_duration_has_its_unit() {
        let said = [0, 999, 1_000, 99_999, 100_000, 9_999_999, 10_000_000].map(format_micros);
        assert_eq!(
            said,
            [
                "0 us", "999 us", "1.0 ms", "99.9 ms", "100 ms", "9999 ms", "10 s"
            ]
        );
    }
}
