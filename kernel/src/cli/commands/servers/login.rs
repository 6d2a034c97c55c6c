//! `mgp logins …`: signs in at a server, and revokes logins.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::doors::suggestions::nearest;
use mgp_engine::servers::login::SignInError;
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::record::LoginRecord;
use mgp_engine::servers::login::scopes::ScopeSet;
use mgp_engine::servers::spec::{ServerSpec, ServerTransport};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_platform::desktop::OPENER;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::approvals::{List, PendingList};
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::servers::{PendingLogin, Restart, Start};
use mgp_servers::{CallbackListener, LoginBackend, LoginError, Logins, ServerLogin, SignIn};
use mgp_store::secrets::Namespace;
use serde_json::json;

use super::start_progress::{StartMode, start_and_watch};
use super::state::{CONNECTED, report_state};
use crate::cli::args;
use crate::cli::args::{Login, Logout};
use crate::cli::client::{CliContext, parse_result};
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::print::{new_table, print_error, print_line};
use crate::cli::text_format::sanitize_line;
use crate::config;
use crate::config::named_secrets::{KernelLookup, NamedSecrets};

/// Limit for the user's sign-in in the browser.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest pasted address, in bytes.
const PASTED_BYTES_MAX: u64 = 16 << 10;

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<SignInError> for Failure {
    fn from(error: SignInError) -> Self {
        Self::Other(error.to_string())
    }
}

/// An entry, its login, and the running kernel.
struct LoginContext {
    spec: ServerSpec,
    /// The agent of the login, if each has its own and one was named.
    agent: Option<AgentId>,
    login: Arc<ServerLogin>,
    status: Option<KernelStatus>,
}

pub(in crate::cli::commands) fn run(
    context: &CliContext,
    typed: &args::Logins,
) -> Result<(), Failure> {
    match typed {
        args::Logins::List => list(context),
        args::Logins::Add(typed) => login(context, typed),
        args::Logins::Remove(typed) => logout(context, typed),
    }
}

/// Lists the stored logins and those that servers of the running kernel require.
fn list(context: &CliContext) -> Result<(), Failure> {
    let wanted = match context.call(List::METHOD, &json!({}), "asking the kernel") {
        Ok(answer) => parse_result::<PendingList>(&answer)?.logins,
        Err(Failure::NotRunning(_)) => BTreeMap::new(),
        Err(other) => return Err(other),
    };
    let stored = context.secret_store()?.list(Namespace::Oauth)?;
    let stored: Vec<[String; 4]> = stored
        .iter()
        .map(|login| {
            let mut words = login.name.split(' ').map(str::to_owned);
            let [server, url, agent] = [(); 3].map(|()| words.next().unwrap_or_default());
            [server, url, agent, render_rfc3339_ms(login.set_ms)]
        })
        .collect();
    if context.json {
        let stored: Vec<_> = stored
            .iter()
            .map(|[server, url, agent, set_at]| {
                let agent = (!agent.is_empty()).then_some(agent);
                json!({"server": server, "url": url, "agent": agent, "set_at": set_at})
            })
            .collect();
        return print_line(json!({"logins": stored, "wanted": wanted}));
    }
    if stored.is_empty() && wanted.is_empty() {
        return print_line("no logins; `mgp logins add SERVER` signs in to a remote server");
    }
    let mut rows = new_table(&["SERVER", "ADDRESS", "AGENT", "SIGNED IN AT"]);
    for row in &stored {
        rows.add_row(row.iter().map(|cell| sanitize_line(cell)));
    }
    for (server, wanted) in &wanted {
        rows.add_row([
            sanitize_line(server),
            String::new(),
            String::new(),
            format!("wanted: {}", sanitize_line(&wanted.command)),
        ]);
    }
    print_line(rows.trim_fmt())
}

/// Signs in.
fn login(context: &CliContext, typed: &Login) -> Result<(), Failure> {
    let login_context = LoginContext::resolve(context, &typed.server, typed.agent.as_deref())?;
    let id = login_context.spec.id.as_str();
    let wanted = login_context.wanted_login();
    let record = block_on(sign_in(
        context,
        &login_context,
        wanted.as_ref(),
        typed.no_browser,
    ))?;
    let until = record.until_ms.map(render_rfc3339_ms);
    let mut report = json!({
        "server": id,
        "issuer": record.issuer,
        "scopes": record.asked.iter().collect::<Vec<_>>(),
        "expires_at": until,
        "renews": record.refresh.is_some(),
    });
    if let Some(agent) = &login_context.agent {
        report["agent"] = agent.as_str().into();
    }
    if !context.json {
        print_line(sanitize_line(&render_record(
            id,
            login_context.agent.as_ref(),
            &record,
        )))?;
    }
    // An agent's login is used by its next call.
    if login_context.status.is_none() || login_context.agent.is_some() {
        return if context.json {
            print_line(report)
        } else {
            Ok(())
        };
    }
    let server = start_and_watch(context, Start::METHOD, "starting", id, StartMode::Plain)?;
    if context.json {
        report["state"] = server.state.clone().into();
        print_line(report)?;
        return if CONNECTED.contains(&server.state.as_str()) {
            Ok(())
        } else {
            Err(Failure::Other(server.reason.unwrap_or(server.state)))
        };
    }
    report_state(context, &server, CONNECTED)
}

fn render_record(id: &str, agent: Option<&AgentId>, record: &LoginRecord) -> String {
    let scopes = if record.asked.is_empty() {
        String::new()
    } else {
        format!(", for {}", record.asked)
    };
    let lasts = match (record.refresh.is_some(), record.until_ms) {
        (true, _) => "the kernel renews it".to_owned(),
        (false, Some(until)) => format!(
            "good until {}, and then to be done again",
            render_rfc3339_ms(until)
        ),
        (false, None) => "good until the server says otherwise".to_owned(),
    };
    let owner_suffix = agent.map_or(String::new(), |agent| format!(" for {agent}"));
    format!(
        "signed in to {id}{owner_suffix} at {}{scopes}; {lasts}",
        record.issuer
    )
}

/// Revokes the tokens, and deletes them.
fn logout(context: &CliContext, typed: &Logout) -> Result<(), Failure> {
    let login_context = LoginContext::resolve(context, &typed.server, typed.agent.as_deref())?;
    let id = login_context.spec.id.as_str();
    let (removed, note) = block_on(async { Ok(login_context.login.forget().await?) })?;
    if !removed {
        let owner_suffix = login_context.agent.as_ref();
        let owner_suffix = owner_suffix.map_or(String::new(), |agent| format!(" of {agent}"));
        return Err(Failure::Other(format!(
            "there is no login{owner_suffix} at {id}"
        )));
    }
    if login_context.status.is_some() {
        // Without its token the server is contacted anew.
        start_and_watch(context, Restart::METHOD, "restarting", id, StartMode::Plain)?;
    }
    if context.json {
        return print_line(
            json!({"server": id, "removed": true, "revoked": note.is_none(), "note": note}),
        );
    }
    print_line(format_args!(
        "the login at {} is forgotten",
        sanitize_line(id)
    ))?;
    if let Some(why) = note {
        print_error(format_args!(
            "note: its tokens were not taken back: {}",
            sanitize_line(&why)
        ));
    }
    Ok(())
}

impl LoginContext {
    /// The entry of this id or URL, as the running kernel reads it.
    fn resolve(context: &CliContext, typed: &str, agent: Option<&str>) -> Result<Self, Failure> {
        let status = context.status()?;
        let look_up = context.lookup_for(status.as_ref());
        let loaded = config::load_with_env(&look_up, &KernelLookup::for_look_up(&look_up), None);
        let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
        let specs: Vec<&ServerSpec> = loaded
            .servers
            .iter()
            .filter_map(|s| s.as_ref().ok())
            .collect();
        let at = |spec: &&&ServerSpec| matches!(&spec.transport, ServerTransport::Http { url, .. } if url == typed);
        let found = specs.iter().find(|spec| spec.id.as_str() == typed);
        let Some(spec) = found.or_else(|| specs.iter().find(at)) else {
            let mut broken = loaded.servers.iter().filter_map(|s| s.as_ref().err());
            let why = broken.find(|it| it.id.as_ref().is_some_and(|id| id.as_str() == typed));
            return Err(match why {
                Some(why) => Failure::Other(why.problem.to_string()),
                None => unknown_server_failure(typed, &specs),
            });
        };
        let place = LoginBackend {
            store: NamedSecrets::for_look_up(&look_up).store(&loaded.kernel.secrets),
            outbound: loaded.kernel.network.outbound(),
        };
        let agent = agent.map(|typed| resolve_agent(context, spec, typed, status.is_some()));
        let agent = agent.transpose()?;
        match Logins::new(place).login_for(spec, agent.as_ref()) {
            Some(login) => Ok(Self {
                agent,
                spec: (*spec).clone(),
                login,
                status,
            }),
            None => Err(Failure::Usage(no_login_reason(spec))),
        }
    }

    /// The login that the server requested from the kernel.
    fn wanted_login(&self) -> Option<PendingLogin> {
        let servers = &self.status.as_ref()?.servers;
        let server = servers
            .iter()
            .find(|server| server.id == self.spec.id.as_str())
            // The request was for the machine's login, not for an agent's.
            .filter(|_| self.agent.is_none())?;
        server.login.clone()
    }
}

/// The named agent, if each has its own login; an unknown one is reported with a suggestion.
fn resolve_agent(
    context: &CliContext,
    spec: &ServerSpec,
    typed: &str,
    runs: bool,
) -> Result<AgentId, Failure> {
    if !spec.login.per_agent {
        return Err(Failure::Usage(format!(
            "{} has one login for the whole machine: leave out --agent, or write `login = \"agent\"` in its entry",
            spec.id
        )));
    }
    agents::resolve_possible_agent(context, typed, runs)
}

fn unknown_server_failure(typed: &str, specs: &[&ServerSpec]) -> Failure {
    let near = nearest(typed, specs.iter().map(|spec| spec.id.as_str()));
    Failure::Usage(match (near, typed.contains("://")) {
        (_, true) => format!(
            "no server has the address {typed}; `mgp servers add NAME --url {typed}` adds it"
        ),
        (Some(near), false) => format!("there is no server {typed}; did you mean {near}?"),
        (None, false) => {
            format!("there is no server {typed}; `mgp servers list` shows those there are")
        }
    })
}

/// Why the server has no login.
fn no_login_reason(spec: &ServerSpec) -> String {
    let id = &spec.id;
    match &spec.transport {
        ServerTransport::Http { headers, .. }
            if headers
                .keys()
                .any(|name| name.eq_ignore_ascii_case("authorization")) =>
        {
            format!(
                "{id} has a token of its own: `headers.Authorization` of its entry; take that out to sign in"
            )
        }
        ServerTransport::Http { .. } if !spec.login.enabled => {
            format!("`login = false` stands in the entry of {id}; take that out to sign in")
        }
        ServerTransport::Http { url, .. } => format!(
            "{} is no address that a token may be sent to: only https, and http to this machine, is safe",
            mgp_protocol::redacted_url::redact_url(url)
        ),
        ServerTransport::Stdio { .. } | ServerTransport::Node(_) => {
            format!("{id} is started by a command and not reached at an address: it has no login")
        }
    }
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    // A thread may still read from the terminal; it cannot be joined.
    runtime.shutdown_background();
    outcome
}

async fn sign_in(
    context: &CliContext,
    login_context: &LoginContext,
    wanted: Option<&PendingLogin>,
    no_browser: bool,
) -> Result<LoginRecord, Failure> {
    let login = &login_context.login;
    login.reload().await;
    let before = login.record();
    let before = before
        .as_ref()
        .and_then(|record| record.client.callback.as_deref());
    let configured = login_context.spec.login.callback.as_deref();
    let mut listener = CallbackListener::bind(configured, before).await?;
    let challenge = wanted.map(|wanted| LoginChallenge {
        resource_metadata: wanted.resource_metadata.clone(),
        scope: ScopeSet::parse(wanted.scope.as_deref().unwrap_or_default()),
        error: None,
        requires_dpop: wanted.bound,
    });
    let under_way = SignIn::begin(login, challenge, &mut listener).await?;
    show_address(context, &under_way, no_browser)?;
    let code = tokio::select! {
        code = listener.wait_for_code(|query| under_way.parse_code(query)) => code?,
        code = read_pasted_code(&under_way), if no_browser => code?,
        () = tokio::time::sleep(BROWSER_TIMEOUT) => {
            return Err(Failure::Other("nobody signed in within 10 minutes; type it again".into()));
        }
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted),
    };
    Ok(under_way.finish(login, &code).await?)
}

/// Prints the URL, and opens it if a user is present.
fn show_address(context: &CliContext, under_way: &SignIn, no_browser: bool) -> Result<(), Failure> {
    let (url, issuer) = (under_way.url(), under_way.issuer());
    let goes_to = under_way.token_endpoint();
    if context.json {
        print_line(json!({ "open": url, "issuer": issuer, "token_endpoint": goes_to }))?;
    } else {
        let [issuer, goes_to, url] = [issuer, goes_to, url].map(sanitize_line);
        print_line(format_args!(
            "the authorization server is {issuer}; what the browser brings back goes to {goes_to}\nsign in at:\n  {url}"
        ))?;
    }
    if no_browser {
        print_error("and paste the address at which the browser ends, then Enter:");
    } else if !context.json && io::stdin().is_terminal() && io::stdout().is_terminal() {
        open_browser(url);
    }
    Ok(())
}

/// Without a shell; the URL is one word that begins with http, or the path of a page.
pub(in crate::cli::commands) fn open_browser(url: &str) {
    let mut command = Command::new(OPENER);
    command
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if command.spawn().is_err() {
        print_error("no browser could be opened; open the address yourself");
    }
}

/// The code in the pasted URL; a URL of another login is rejected, and the next line is read.
async fn read_pasted_code(under_way: &SignIn) -> Result<String, Failure> {
    loop {
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            let read = io::stdin()
                .lock()
                .take(PASTED_BYTES_MAX)
                .read_line(&mut line);
            read.map(|read| (read > 0).then_some(line))
        });
        let Some(line) = line.await.map_err(|e| Failure::Other(e.to_string()))?? else {
            // Nobody can paste; the browser may still complete the login.
            return std::future::pending().await;
        };
        let line = line.trim();
        let query = line.split_once('?').map_or(line, |(_, query)| query);
        let query = query.split('#').next().unwrap_or_default();
        match under_way.parse_code(query) {
            Err(SignInError::UnknownState) => {
                print_error(
                    "that is no answer to this login; paste the whole address, from http:// on:",
                );
            }
            code => return Ok(code?),
        }
    }
}
