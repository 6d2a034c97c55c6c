//! Everything that can be typed.

pub mod reading;
mod trust;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use trust::{Trust, Untrust};

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed; the message says what to do
  2  the command line or the arguments of a tool are wrong
  3  no kernel is running
  4  the tool answered, and its answer is an error; or the audit log is damaged
  130  interrupted

Files:
  ./mgp.toml, ~/.config/mgp/servers.toml   read in this order, the first wins for each server;
                                           ./mgp.toml only once `mgp trust` has shown it to you
  $MGP_CONFIG_PATH or --config FILE        then only this file is read";

/// One kernel per machine: runs and watches every MCP server, and gives agents one door.
#[derive(Debug, Parser)]
#[command(name = "mgp", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub options: Options,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Args)]
pub struct Options {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Read only this configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The kernel's socket, when it is not in its usual place.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "MGP_SOCKET",
        hide_env_values = true
    )]
    pub socket: Option<PathBuf>,
    /// Where the kernel keeps what lasts, when it is not the usual place.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "MGP_DATA_DIR",
        hide_env_values = true
    )]
    pub data_dir: Option<PathBuf>,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the kernel here until it is stopped.
    Up(Up),
    /// End the running kernel and its servers.
    Down,
    /// Try it out: a kernel with a built-in server, in a folder of its own that is removed at the end.
    Demo,
    /// Join stdin and stdout to the running kernel; this is what an MCP client starts.
    Stdio(Stdio),
    /// Show the kernel, its doors, its servers and who is connected.
    Status,
    /// Look after the servers.
    #[command(subcommand)]
    Servers(Servers),
    /// Let the mgp.toml of a folder hold, after a look at what it would start.
    Trust(Trust),
    /// Leave the mgp.toml of a folder out again.
    Untrust(Untrust),
    /// Give agents names and tokens.
    #[command(subcommand)]
    Agents(Agents),
    /// List and call tools.
    #[command(subcommand)]
    Tools(Tools),
    /// List and read resources.
    #[command(subcommand)]
    Resources(reading::Resources),
    /// List prompts, and fill one in.
    #[command(subcommand)]
    Prompts(reading::Prompts),
    /// Show what was done, and whether the log of it is whole.
    #[command(subcommand)]
    Audit(Audit),
    /// Show what waits for your answer.
    Pending,
    /// Say yes to what waits.
    Approve(Approve),
    /// Say no to what waits, or take a permission back from a server.
    Deny(Deny),
    /// Let an agent use a server or a tool, or deny it.
    Grant(Grant),
    /// Take a grant or a denial back.
    Revoke(Revoke),
    /// Show what is granted and denied.
    Grants(Grants),
    /// Say whether an agent may use a server or a tool, and by which rule.
    Explain(Explain),
    /// Watches over the kernel's children.
    #[command(name = "__guard", hide = true)]
    Guard,
    /// Becomes a server in its sandbox.
    #[command(name = "__sandbox", hide = true)]
    Sandbox {
        /// Its program, its name and its arguments; without any, the machine is tried out.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Runs the model that gives texts their meaning.
    #[command(name = "__embed", hide = true)]
    Embed,
    /// The server behind `mgp demo`.
    #[command(name = "__demo-server", hide = true)]
    DemoServer(DemoServer),
}

/// `mgp up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp up
  mgp up --config ./mgp.toml
  mgp up --detach          # comes back when the kernel answers; writes to <data>/kernel.log")]
pub struct Up {
    /// Run in the background.
    #[arg(long)]
    pub detach: bool,
    /// Leave the terminal: how `--detach` starts the kernel.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub own_session: bool,
}

/// `mgp stdio`.
#[derive(Debug, Args)]
#[command(after_help = "\
Finds the running kernel of this user whatever the environment, and starts one when none runs.
It stays when the kernel is restarted. Everything on stdout is JSON-RPC; messages go to stderr.

Example, in a client's configuration:
  \"mcpServers\": { \"mgp\": { \"command\": \"mgp\", \"args\": [\"stdio\"] } }")]
pub struct Stdio {
    /// The agent to speak as: one of `mgp agents list`, with its access and no more. Without this
    /// agent.local; at another user's kernel, whom that one's configuration says you are.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The user who runs the kernel at `--socket`, when it is neither you nor root.
    #[arg(long, value_name = "USER", conflicts_with = "agent")]
    pub of: Option<String>,
    /// Show only this server, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
}

/// `mgp servers …`.
#[derive(Debug, Subcommand)]
pub enum Servers {
    /// Show every server, why it is down and when it is tried again.
    List,
    /// Write a server into the configuration, and start it when a kernel runs.
    Add(Add),
    /// Take a server out: of the configuration, or one that was registered while the kernel ran.
    Remove(Removed),
    /// Start a server and wait until it is connected or has failed.
    Start(Named),
    /// Let a server finish its calls and stop it.
    Stop(Named),
    /// Stop a server and start it again.
    Restart(Named),
    /// Show all that is known of a server.
    Info(Named),
    /// Show what a server wrote to stderr.
    Logs(Logs),
}

/// A server by its id.
#[derive(Debug, Args)]
pub struct Named {
    /// The server's id.
    pub id: String,
}

/// `mgp servers remove`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp servers remove files
  mgp servers remove dynamic.csv_tools     # one that `mgp servers list` says an agent registered")]
pub struct Removed {
    /// The server's id.
    pub id: String,
}

/// `mgp servers add`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp servers add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  mgp servers add search --env BRAVE_KEY -- npx -y brave-search
  mgp servers add search --env-file ./brave.env -- npx -y brave-search
  mgp servers add search --env BRAVE_KEY=file:/run/secrets/brave -- npx -y brave-search
  mgp servers add docs --url https://example.org/mcp --header Authorization
  mgp servers add docs --url https://example.org/mcp --header 'Authorization=Bearer ${DOCS_TOKEN}'

A command line is read by every user of the machine, so values do not stand on it. What is typed
when asked, and what comes out of --env-file, is kept in files that are yours alone, below
~/.config/mgp/secrets; the configuration names them.")]
pub struct Add {
    /// The server's id: letters, digits, '.', '_' and '-'.
    pub id: String,
    /// Reach it at this address instead of starting a program.
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    pub url: Option<String>,
    /// A variable for it. KEY alone is the kernel's own variable of that name; where yours is not set,
    /// its value is asked for. Or where the value is: KEY=${NAME}, KEY=file:PATH.
    #[arg(long, value_name = "KEY[=WHERE]", conflicts_with = "url")]
    pub env: Vec<String>,
    /// A file of variables for it, one KEY=VALUE to a line; `-` is stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub env_file: Vec<PathBuf>,
    /// A header for each request. The value of NAME alone is asked for. Or where it is: NAME=${NAME},
    /// 'NAME=Bearer ${NAME}', NAME=file:PATH.
    #[arg(long, value_name = "NAME[=WHERE]", conflicts_with = "command")]
    pub header: Vec<String>,
    /// Write it into ./mgp.toml instead of your own file.
    #[arg(long)]
    pub project: bool,
    /// Its working folder; the folder of the configuration file when not given.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub cwd: Option<String>,
    /// Start it only when asked to.
    #[arg(long)]
    pub no_autostart: bool,
    /// How far it is trusted.
    #[arg(long, value_name = "LEVEL", value_parser = ["sandboxed", "standard", "trusted"])]
    pub trust: Option<String>,
    /// When it is started again.
    #[arg(long, value_name = "POLICY", value_parser = ["never", "on_failure", "always"])]
    pub restart: Option<String>,
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `mgp servers logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// The server's id.
    pub id: String,
    /// Go on with new lines as they come.
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last lines.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub lines: usize,
}

/// `mgp agents …`.
#[derive(Debug, Subcommand)]
pub enum Agents {
    /// Make an agent, and show its token, this once, and the entries for its client.
    Add(AddAgent),
    /// Show every agent that has a token.
    List,
    /// Take an agent's token away; what the agent has under way ends.
    Remove(NamedAgent),
    /// Show how old an agent's token is, or make a new one in its place.
    Token(AgentToken),
}

/// `mgp agents add`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp agents add alice
  mgp agents add ci --expires 30d

Prints what goes into the configuration of a client: for one that starts programs
(`mgp stdio --agent alice`, without a token), and for one that speaks HTTP, with the token.
The token is printed once and kept as a hash. It stands alone on stdout; the entries go to stderr.")]
pub struct AddAgent {
    /// The agent's name: letters, digits, '.', '_' and '-'.
    pub name: String,
    /// How long the token is good: 90s, 45m, 12h, 30d; for ever when not given.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub expires: Option<u64>,
}

/// An agent by its name.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  mgp agents remove alice")]
pub struct NamedAgent {
    /// The agent's name, with or without `agent.`.
    pub name: String,
}

/// `mgp agents token`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp agents token alice                        # when it was made, and until when it is good
  mgp agents token alice --rotate --expires 7d  # a new one; the one before is good for nothing at once")]
pub struct AgentToken {
    /// The agent's name, with or without `agent.`.
    pub name: String,
    /// Make a new token in place of the one before, and show it this once.
    #[arg(long)]
    pub rotate: bool,
    /// How long the new one is good: 90s, 45m, 12h, 30d; for ever when not given.
    #[arg(long, value_name = "TIME", value_parser = span, requires = "rotate")]
    pub expires: Option<u64>,
}

/// A time like `30d`, in seconds.
fn span(text: &str) -> Result<u64, String> {
    let wrong = || "a time is a number and s, m, h or d, like 90s or 30d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number
        .checked_mul(seconds)
        .filter(|all| *all > 0)
        .ok_or_else(wrong)
}

/// `mgp tools …`.
#[derive(Debug, Subcommand)]
pub enum Tools {
    /// Show every tool there is, by the names that every command prints and reads, or what one agent sees.
    List(ListTools),
    /// Call a tool and show its answer.
    Call(Call),
    /// Find tools by what they do.
    Find(Find),
}

/// `mgp tools list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools list
  mgp tools list --server files
  mgp tools list --agent claude    # just what it is shown: nothing it may not call")]
pub struct ListTools {
    /// Only this server's, under its own names.
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// What this agent sees, one of `mgp agents list`; agent.local is a client without a name of its own.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
}

/// `mgp tools find`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools find 'look for a text in all files of a folder'
  mgp tools find read_fiel --strategy keyword --max 3
  mgp tools find time --agent research.bot")]
pub struct Find {
    /// What the tool should do, in your own words.
    pub query: String,
    /// By words, by meaning, by place, or by words and meaning together.
    #[arg(long, value_name = "HOW", value_parser = ["keyword", "semantic", "category", "hybrid"], default_value = "hybrid")]
    pub strategy: String,
    /// Show so many at most.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max: usize,
    /// Only tools of this category or of one below it; more than once for several.
    #[arg(long, value_name = "CATEGORY")]
    pub category: Vec<String>,
    /// Only tools that this agent may call.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
}

/// `mgp tools call`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp tools call demo:time
  mgp tools call demo:search_text folder=src pattern='fn main'
  mgp tools call demo:slow_job '{\"steps\": 5}'
  mgp tools call demo:search_text @arguments.json

A command line is read by every user of the machine: an argument that is a secret goes into a @FILE,
or through a pipe into @/dev/stdin.
Values are read as the tool's schema says: numbers, true and false, and JSON for lists and objects.
Pictures and sounds are saved as files. Questions of the tool are asked here when this is a terminal.")]
pub struct Call {
    /// The tool: as listed, SERVER:TOOL; also SERVER/TOOL, what agents are shown, SERVER__TOOL, or its
    /// bare name when only one server has it.
    pub name: String,
    /// KEY=VALUE; or all arguments as a JSON object, or as @FILE with one.
    #[arg(value_name = "KEY=VALUE|JSON|@FILE")]
    pub arguments: Vec<String>,
    /// All arguments as a JSON object.
    #[arg(long, value_name = "JSON", conflicts_with = "arguments")]
    pub json_args: Option<String>,
    /// Where to save pictures and sounds.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// `mgp audit …`.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Show the last events.
    Tail(Tail),
    /// Look at every record of the log, with or without a running kernel.
    #[command(after_help = "\
Names each record that was changed, removed, moved or put in, and what is missing beside the log. A
kernel that runs on the data folder is asked for its last record.
Exits with 0 when the log is whole or the operator has acknowledged what is wrong, with 4 otherwise.

Examples:
  mgp audit verify
  mgp audit verify --data-dir /backup/mgp --json")]
    Verify,
    /// Take note of what is wrong with the log: `verify` does not fail for it any more.
    #[command(after_help = "\
Looks at the whole log, shows what is wrong, and writes down that the operator knows of it. The files stay as
they are. The kernel must be running.

Examples:
  mgp audit acknowledge
  mgp audit acknowledge --reason 'moved to a new disk'")]
    Acknowledge(Acknowledge),
}

/// `mgp audit acknowledge`.
#[derive(Debug, Args)]
pub struct Acknowledge {
    /// Why it may stay so: it is written down with it.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `mgp audit tail`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp audit tail
  mgp audit tail -f --json | jq 'select(.result != \"SUCCESS\")'")]
pub struct Tail {
    /// Go on with new events as they come.
    #[arg(short, long)]
    pub follow: bool,
    /// How many of the last events.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: u64,
}

/// `mgp approve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp pending
  mgp approve tobami
  mgp approve tobami --for 1h --only network.outbound")]
pub struct Approve {
    /// The name of the question, as `mgp pending` shows it.
    pub id: String,
    /// For how long: 90s, 30m, 1h or 7d; for good when not given.
    #[arg(long = "for", value_name = "TIME", value_parser = super::approvals::duration)]
    pub during: Option<u64>,
    /// Only this part of the question; may be given several times.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
}

/// `mgp deny`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp deny tobami
  mgp deny tobami --only shell.execute
  mgp deny tobami --later    # it goes on without, and the question stays
  mgp deny files network.outbound    # takes back what server files has")]
pub struct Deny {
    /// The name of the question, as `mgp pending` shows it; or a server.
    pub id: String,
    /// The permission to take back from the server.
    #[arg(conflicts_with_all = ["only", "later"])]
    pub permission: Option<String>,
    /// Only this part of the question; may be given several times.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// Not now: it goes on without, and the question stays open.
    #[arg(long)]
    pub later: bool,
}

/// Whom and what a rule is about.
#[derive(Debug, Args)]
pub struct About {
    /// The agent, with or without `agent.`.
    pub agent: String,
    /// A server, or one of its tools as SERVER:TOOL; SERVER/TOOL and what agents are shown,
    /// SERVER__TOOL, are read, too.
    #[arg(value_name = "SERVER[:TOOL]")]
    pub place: String,
    /// All of a server, although a tool of another one is shown under its name.
    #[arg(long)]
    pub whole_server: bool,
    /// For an agent, a server or a tool that is still to come: nobody looks whether the names are right.
    #[arg(long)]
    pub yet_unknown: bool,
}

/// `mgp grant`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp grant agent.local files
  mgp grant agent.local files:move_file --deny --because 'only by hand'
  mgp grant agent.local files:write_file --expires 1h
  mgp grant agent.ci later --deny --yet-unknown    # before there are such an agent and server")]
pub struct Grant {
    /// Whom and what.
    #[command(flatten)]
    pub about: About,
    /// Deny instead.
    #[arg(long)]
    pub deny: bool,
    /// When it ends: 90s, 30m, 1h, 7d or 2026-03-01T00:00:00Z; never when not given.
    #[arg(long, value_name = "TIME", value_parser = super::access::end)]
    pub expires: Option<u64>,
    /// Why, for those who read it later.
    #[arg(long, value_name = "TEXT")]
    pub because: Option<String>,
}

/// `mgp revoke`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp revoke agent.local files
  mgp revoke agent.local files:move_file")]
pub struct Revoke {
    /// Whom and what: as it was granted or denied, a server or a tool.
    #[command(flatten)]
    pub about: About,
}

/// `mgp grants`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp grants
  mgp grants --agent agent.local --json")]
pub struct Grants {
    /// Only of this agent.
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
}

/// `mgp explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mgp explain agent.local files:move_file
  mgp explain agent.local files")]
pub struct Explain {
    /// Whom and what.
    #[command(flatten)]
    pub about: About,
}

/// `mgp __demo-server`.
#[derive(Debug, Args)]
pub struct DemoServer {
    /// The folder that may be searched.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub root: PathBuf,
}

#[cfg(test)]
mod tests;
