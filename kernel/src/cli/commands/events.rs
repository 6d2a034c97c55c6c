//! `mgp events tail|list`, `mgp trace` and `mgp replay`.

pub(super) mod replay;
pub(super) mod trace;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::Event;
use mgp_protocol::mgp::events::{Channel, Channels, Filter, Subscribe, Subscribed};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::args::{Events, TailEvents};
use crate::cli::client::{CliContext, RequestObserver, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::sanitize_line;

pub(super) fn run(context: &CliContext, typed: Events) -> Result<(), Failure> {
    match typed {
        Events::Tail(typed) => tail(context, &typed),
        Events::List => list_channels(context),
    }
}

fn tail(context: &CliContext, typed: &TailEvents) -> Result<(), Failure> {
    let channels = if typed.channels.is_empty() {
        vec!["*".to_owned()]
    } else {
        typed.channels.clone()
    };
    let filter = Filter {
        min_severity: typed.min_severity.map(Into::into),
    };
    let mut asked = json!({"channels": channels, "filter": filter});
    if let Some(since) = &typed.since {
        asked["_mgp.cursor"] = since.as_str().into();
    }
    context.with_kernel(async |client| {
        let answer = client.request(Subscribe::METHOD, &asked, &mut ()).await?;
        let said: Subscribed = parse_result(&answer)?;
        for channel in &said.unsupported {
            print_error(sanitize_line(&format!(
                "mgp: nobody has the channel {channel} now; `mgp events list` shows those there are"
            )));
        }
        if said.subscribed.is_empty() {
            return Err(Failure::Other("there is nothing to show".into()));
        }
        let mut shown = EventPrinter(context.json);
        client.listen_until_closed(&mut shown).await
    })
}

/// Prints each event.
struct EventPrinter(bool);

impl RequestObserver for EventPrinter {
    fn on_notification(&mut self, method: &str, params: &str) -> Result<(), Failure> {
        match (method == Event::METHOD, self.0) {
            (false, _) => Ok(()),
            (true, true) => print_line(params),
            (true, false) => print_line(sanitize_line(&render_event(
                &serde_json::from_str(params).unwrap_or_default(),
            ))),
        }
    }
}

/// Time, channel, server, severity and message in one line.
fn render_event(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let server = match text("_mgp.server_id") {
        "" => String::new(),
        server => format!("  {server}"),
    };
    let severity = match text("_mgp.severity") {
        "" | "info" => String::new(),
        severity => format!("  {severity}"),
    };
    let (at, channel, data) = (text("timestamp"), text("channel"), &event["data"]);
    format!("{at}  {channel}{server}{severity}  {data}")
}

fn list_channels(context: &CliContext) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Listed {
        channels: Vec<Channel>,
    }
    context.with_kernel(async |client| {
        let answer = client
            .request(Channels::METHOD, &json!({}), &mut ())
            .await?;
        if context.json {
            return print_line(answer.get());
        }
        let listed: Listed = parse_result(&answer)?;
        let mut table = new_table(&["CHANNEL", "OF", "IN THE LOG", "WHAT"]);
        for channel in listed.channels {
            let logged = if channel.logged { "yes" } else { "no" };
            table.add_row([
                sanitize_line(&channel.channel),
                sanitize_line(channel.server_id.as_deref().unwrap_or("the kernel")),
                logged.into(),
                sanitize_line(channel.description.as_deref().unwrap_or_default()),
            ]);
        }
        print_line(table)
    })
}
