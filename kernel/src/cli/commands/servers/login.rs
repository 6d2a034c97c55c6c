//! `mgp logins …`: a person signs in at a server, and takes that back.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::doors::nearest::nearest;
use mgp_engine::servers::login::NoLogin;
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::record::LoginRecord;
use mgp_engine::servers::login::scopes::ScopeSet;
use mgp_engine::servers::spec::{Reach, ServerSpec};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::approvals::{List, Pending};
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::servers::{Restart, Start, WantedLogin};
use mgp_servers::login::{CallbackListener, LoginError, LoginPlace, Logins, ServerLogin, SignIn};
use mgp_store::secrets::Namespace;
use serde_json::json;

use super::starting::{StartMode, watch};
use super::state::{CONNECTED, tell};
use crate::cli::args;
use crate::cli::args::{Login, Logout};
use crate::cli::client::{CliContext, names, read};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say, table};
use crate::cli::words::plain;
use crate::config;
use crate::config::named_secrets::{KernelLookup, NamedSecrets};

/// How long a person may take with the browser.
const PATIENCE: Duration = Duration::from_secs(600);
/// Longest pasted address, in bytes.
const PASTED: u64 = 16 << 10;

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<NoLogin> for Failure {
    fn from(error: NoLogin) -> Self {
        Self::Other(error.to_string())
    }
}

/// One entry, its login, and the kernel that runs with it.
struct LoginScene {
    spec: ServerSpec,
    /// Whose login it is, where each agent has its own and one was named.
    agent: Option<AgentId>,
    login: Arc<ServerLogin>,
    status: Option<KernelStatus>,
}

/// Carries out one of them.
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

/// Lists the stored logins and, of a running kernel, those that servers want.
fn list(context: &CliContext) -> Result<(), Failure> {
    let wanted = match context.ask(List::METHOD, &json!({}), "asking the kernel") {
        Ok(answer) => read::<Pending>(&answer)?.logins,
        Err(Failure::NotRunning(_)) => BTreeMap::new(),
        Err(other) => return Err(other),
    };
    let stored = context.secret_store()?.list(Namespace::Oauth)?;
    let stored: Vec<[String; 4]> = stored
        .iter()
        .map(|login| {
            let mut words = login.name.split(' ').map(str::to_owned);
            let [server, url, agent] = [(); 3].map(|()| words.next().unwrap_or_default());
            [server, url, agent, rfc3339_ms(login.set_ms)]
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
        return say(json!({"logins": stored, "wanted": wanted}));
    }
    if stored.is_empty() && wanted.is_empty() {
        return say("no logins; `mgp logins add SERVER` signs in to a remote server");
    }
    let mut rows = table(&["SERVER", "ADDRESS", "AGENT", "SIGNED IN AT"]);
    for row in &stored {
        rows.add_row(row.iter().map(|cell| plain(cell)));
    }
    for (server, wanted) in &wanted {
        rows.add_row([
            plain(server),
            String::new(),
            String::new(),
            format!("wanted: {}", plain(&wanted.command)),
        ]);
    }
    say(rows.trim_fmt())
}

/// Signs in.
fn login(context: &CliContext, typed: &Login) -> Result<(), Failure> {
    let scene = LoginScene::of(context, &typed.server, typed.agent.as_deref())?;
    let id = scene.spec.id.as_str();
    let wanted = scene.wanted();
    let record = alone(sign_in(context, &scene, wanted.as_ref(), typed.no_browser))?;
    let until = record.until_ms.map(rfc3339_ms);
    let mut told = json!({
        "server": id,
        "issuer": record.issuer,
        "scopes": record.asked.iter().collect::<Vec<_>>(),
        "expires_at": until,
        "renews": record.refresh.is_some(),
    });
    if let Some(agent) = &scene.agent {
        told["agent"] = agent.as_str().into();
    }
    if !context.json {
        say(plain(&in_words(id, scene.agent.as_ref(), &record)))?;
    }
    // That of an agent is taken by its next call.
    if scene.status.is_none() || scene.agent.is_some() {
        return match context.json {
            true => say(told),
            false => Ok(()),
        };
    }
    let server = watch(context, Start::METHOD, "starting", id, StartMode::Plain)?;
    if context.json {
        told["state"] = server.state.clone().into();
        say(told)?;
        return match CONNECTED.contains(&server.state.as_str()) {
            true => Ok(()),
            false => Err(Failure::Other(server.reason.unwrap_or(server.state))),
        };
    }
    tell(context, &server, CONNECTED)
}

fn in_words(id: &str, agent: Option<&AgentId>, record: &LoginRecord) -> String {
    let scopes = match record.asked.is_empty() {
        true => String::new(),
        false => format!(", for {}", record.asked),
    };
    let lasts = match (record.refresh.is_some(), record.until_ms) {
        (true, _) => "the kernel renews it".to_owned(),
        (false, Some(until)) => format!(
            "good until {}, and then to be done again",
            rfc3339_ms(until)
        ),
        (false, None) => "good until the server says otherwise".to_owned(),
    };
    let whose = agent.map_or(String::new(), |agent| format!(" for {agent}"));
    format!(
        "signed in to {id}{whose} at {}{scopes}; {lasts}",
        record.issuer
    )
}

/// Has the tokens taken back, and forgets them.
fn logout(context: &CliContext, typed: &Logout) -> Result<(), Failure> {
    let scene = LoginScene::of(context, &typed.server, typed.agent.as_deref())?;
    let id = scene.spec.id.as_str();
    let (removed, told) = alone(async { Ok(scene.login.forget().await?) })?;
    if !removed {
        let whose = scene.agent.as_ref();
        let whose = whose.map_or(String::new(), |agent| format!(" of {agent}"));
        return Err(Failure::Other(format!("there is no login{whose} at {id}")));
    }
    if scene.status.is_some() {
        // Without its token the server is to be asked anew.
        watch(context, Restart::METHOD, "restarting", id, StartMode::Plain)?;
    }
    if context.json {
        return say(
            json!({"server": id, "removed": true, "revoked": told.is_none(), "note": told}),
        );
    }
    say(format_args!("the login at {} is forgotten", plain(id)))?;
    if let Some(why) = told {
        report(format_args!(
            "note: its tokens were not taken back: {}",
            plain(&why)
        ));
    }
    Ok(())
}

impl LoginScene {
    /// The entry of this id or address, as the kernel that runs reads it.
    fn of(context: &CliContext, typed: &str, agent: Option<&str>) -> Result<Self, Failure> {
        let status = context.status()?;
        let look_up = context.look_up_of(status.as_ref());
        let loaded = config::load_with(&look_up, &KernelLookup::of(&look_up), None);
        let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
        let specs: Vec<&ServerSpec> = loaded
            .servers
            .iter()
            .filter_map(|s| s.as_ref().ok())
            .collect();
        let at =
            |spec: &&&ServerSpec| matches!(&spec.reach, Reach::Http { url, .. } if url == typed);
        let found = specs.iter().find(|spec| spec.id.as_str() == typed);
        let Some(spec) = found.or_else(|| specs.iter().find(at)) else {
            let mut broken = loaded.servers.iter().filter_map(|s| s.as_ref().err());
            let why = broken.find(|it| it.id.as_ref().is_some_and(|id| id.as_str() == typed));
            return Err(match why {
                Some(why) => Failure::Other(why.problem.to_string()),
                None => unknown(typed, &specs),
            });
        };
        let place = LoginPlace {
            store: NamedSecrets::of(&look_up).store(&loaded.kernel.secrets),
            outbound: loaded.kernel.network.outbound(),
        };
        let agent = agent.map(|typed| named(context, spec, typed, status.is_some()));
        let agent = agent.transpose()?;
        match Logins::new(place).of(spec, agent.as_ref()) {
            Some(login) => Ok(Self {
                agent,
                spec: (*spec).clone(),
                login,
                status,
            }),
            None => Err(Failure::Usage(no_login(spec))),
        }
    }

    /// What the server said to the kernel.
    fn wanted(&self) -> Option<WantedLogin> {
        let servers = &self.status.as_ref()?.servers;
        let server = servers
            .iter()
            .find(|server| server.id == self.spec.id.as_str())
            // What it said to the machine it did not say to an agent.
            .filter(|_| self.agent.is_none())?;
        server.login.clone()
    }
}

/// The agent that was named, where each has a login of its own; of one that the kernel does not know it tells
/// the nearest.
fn named(
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
    let known = match runs {
        true => context.with_kernel(async |client| names::agent(client, typed).await)?,
        false => None,
    };
    let typed = known.as_deref().unwrap_or(typed);
    // The one without a name has a login of its own, too.
    match [typed, typed.trim_start_matches(AgentId::PREFIX)].contains(&"local")
        || typed == AgentId::LOCAL
    {
        true => Ok(AgentId::new(AgentId::LOCAL)),
        false => AgentId::parse(typed).map_err(|e| Failure::Usage(e.to_string())),
    }
}

fn unknown(typed: &str, specs: &[&ServerSpec]) -> Failure {
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

/// Why there is nothing to sign in to.
fn no_login(spec: &ServerSpec) -> String {
    let id = &spec.id;
    match &spec.reach {
        Reach::Http { headers, .. }
            if headers
                .keys()
                .any(|name| name.eq_ignore_ascii_case("authorization")) =>
        {
            format!(
                "{id} has a token of its own: `headers.Authorization` of its entry; take that out to sign in"
            )
        }
        Reach::Http { .. } if !spec.login.enabled => {
            format!("`login = false` stands in the entry of {id}; take that out to sign in")
        }
        Reach::Http { url, .. } => format!(
            "{} is no address that a token may be sent to: only https, and http to this machine, is safe",
            mgp_protocol::address::shown(url)
        ),
        Reach::Stdio { .. } | Reach::Node(_) => {
            format!("{id} is started by a command and not reached at an address: it has no login")
        }
    }
}

fn alone<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    // A thread may still wait for a line from the terminal; nobody waits for it.
    runtime.shutdown_background();
    outcome
}

async fn sign_in(
    context: &CliContext,
    scene: &LoginScene,
    wanted: Option<&WantedLogin>,
    no_browser: bool,
) -> Result<LoginRecord, Failure> {
    let login = &scene.login;
    login.look().await;
    let before = login.record();
    let before = before
        .as_ref()
        .and_then(|record| record.client.callback.as_deref());
    let configured = scene.spec.login.callback.as_deref();
    let mut listener = CallbackListener::bind(configured, before).await?;
    let challenge = wanted.map(|wanted| LoginChallenge {
        resource_metadata: wanted.resource_metadata.clone(),
        scope: ScopeSet::read(wanted.scope.as_deref().unwrap_or_default()),
        error: None,
        bound: wanted.bound,
    });
    let under_way = SignIn::begin(login, challenge, &mut listener).await?;
    show(context, &under_way, no_browser)?;
    let code = tokio::select! {
        code = listener.code(|query| under_way.code(query)) => code?,
        code = pasted(&under_way), if no_browser => code?,
        () = tokio::time::sleep(PATIENCE) => {
            return Err(Failure::Other("nobody signed in within 10 minutes; type it again".into()));
        }
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted),
    };
    Ok(under_way.finish(login, &code).await?)
}

/// Tells the address, and opens it once where a person is there to see that.
fn show(context: &CliContext, under_way: &SignIn, no_browser: bool) -> Result<(), Failure> {
    let (url, issuer) = (under_way.url(), under_way.issuer());
    let goes_to = under_way.token_endpoint();
    if context.json {
        say(json!({ "open": url, "issuer": issuer, "token_endpoint": goes_to }))?;
    } else {
        let [issuer, goes_to, url] = [issuer, goes_to, url].map(plain);
        say(format_args!(
            "the authorization server is {issuer}; what the browser brings back goes to {goes_to}\nsign in at:\n  {url}"
        ))?;
    }
    if no_browser {
        report("and paste the address at which the browser ends, then Enter:");
    } else if !context.json && io::stdin().is_terminal() && io::stdout().is_terminal() {
        open(url);
    }
    Ok(())
}

/// Without a shell; the address is one word, and begins with http, or is the path of a page.
pub(in crate::cli::commands) fn open(url: &str) {
    let opener = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let mut command = Command::new(opener);
    command
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if command.spawn().is_err() {
        report("no browser could be opened; open the address yourself");
    }
}

/// The code in what is pasted; an address of another login is told, and the next line is waited for.
async fn pasted(under_way: &SignIn) -> Result<String, Failure> {
    loop {
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            let read = io::stdin().lock().take(PASTED).read_line(&mut line);
            read.map(|read| (read > 0).then_some(line))
        });
        let Some(line) = line.await.map_err(|e| Failure::Other(e.to_string()))?? else {
            // Nobody pastes anything; the browser may still come back by itself.
            return std::future::pending().await;
        };
        let line = line.trim();
        let query = line.split_once('?').map_or(line, |(_, query)| query);
        let query = query.split('#').next().unwrap_or_default();
        match under_way.code(query) {
            Err(NoLogin::NotOurs) => {
                report(
                    "that is no answer to this login; paste the whole address, from http:// on:",
                );
            }
            code => return Ok(code?),
        }
    }
}
