//! `mgp/tools/*`: finding tools instead of reading all of them (MGP §16). As methods, and as tools of
//! the kernel ([`meta`]).

pub mod meta;
pub mod methods;
pub mod session;

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::discovery::Status;
use super::discovery::security::RiskLevel;
use super::request;
use crate::mcp::methods;

methods! {
    "mgp/tools/discover" => Discover,
    "mgp/tools/request" => Request,
    "mgp/tools/session" => Session,
    "mgp/tools/call" => Call<'_>,
}

/// Results of a search that does not say how many it wants (§16.5).
pub const DEFAULT_RESULTS: usize = 5;

/// How tools are looked for (§16.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// By words, forgiving slips in names.
    Keyword,
    /// By meaning.
    Semantic,
    /// By where they stand in the order of things.
    Category,
    /// By words and meaning together: what is taken when nothing is said.
    Hybrid,
}

impl Strategy {
    const ALL: [Self; 4] = [Self::Keyword, Self::Semantic, Self::Category, Self::Hybrid];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keyword => "keyword",
            Self::Semantic => "semantic",
            Self::Category => "category",
            Self::Hybrid => "hybrid",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == word)
    }
}

request! {
    /// `mgp/tools/discover`; answers [`DiscoverToolsResult`].
    Discover {
        /// What the tool should do.
        query: String,
        /// How to look; by words and meaning together when absent.
        #[serde(default)]
        strategy: Option<Strategy>,
        /// At most this many; [`DEFAULT_RESULTS`] when absent.
        #[serde(default)]
        max_results: Option<usize>,
        /// The conditions that results must meet.
        #[serde(default)]
        filter: Filter,
    }
}

/// What results must be: all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// In one of these, or below; any when there is none.
    #[serde(default)]
    pub categories: Vec<String>,
    /// No riskier than that, by the kernel's own judgement.
    #[serde(default)]
    pub risk_level_max: Option<RiskLevel>,
    /// Of servers in this state; connected ones when absent.
    #[serde(default)]
    pub status: Option<Status>,
}

/// Answer of `mgp/tools/discover` (§16.5).
#[derive(Debug, Serialize)]
pub struct DiscoverToolsResult {
    /// The best first.
    pub tools: Vec<ToolMatch>,
    /// How many there were to choose from: those the caller may know of that pass the filter.
    pub total_available: usize,
    /// How it was searched.
    pub search_strategy: Strategy,
    /// The same, where another was asked for and could not be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_strategy: Option<Strategy>,
    /// How long it took.
    pub query_time_ms: u64,
    /// Results that were found, wanted, and would not have fitted into the context budget (§16.8).
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// What the asker should know: that nothing fits well, or that not all of the query was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A tool that was found, with all it takes to call it.
#[derive(Debug, Serialize)]
pub struct ToolMatch {
    /// Under which name it is called by who asked.
    pub name: String,
    /// Its server.
    pub server_id: String,
    /// `server:tool`, the same for everybody.
    pub tool_id: String,
    /// What its server says it does.
    pub description: String,
    /// How well it fits, from 0 to 1; `None` for one that was asked for and not ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relevance_score: Option<f32>,
    /// Whether it does what is looked for at all, as far as that can be told: of any tools one is the
    /// best.
    pub fits: bool,
    /// The whole schema, as its server wrote it.
    #[serde(rename = "inputSchema")]
    pub input_schema: Box<RawValue>,
    /// What its server says, with the kernel's own level beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Box<RawValue>>,
}

request! {
    /// `mgp/tools/request`; answers [`RequestResult`].
    Request {
        /// What kind of need it is.
        #[serde(default)]
        reason: Reason,
        /// What the task is, in words.
        #[serde(default)]
        context: String,
        /// What is needed.
        requirements: Requirements,
        /// The trace of the task, for the audit.
        #[serde(default)]
        task_trace_id: Option<String>,
    }
}

/// Why an agent asks for tools: for the audit, it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It cannot go on with what it has.
    #[default]
    CapabilityGap,
    /// What it has is too slow (later drafts).
    Performance,
    /// It would rather have others (later drafts).
    Preference,
}

/// What an agent needs (§16.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    /// What the tools should be able to do, one thing each.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What they should take.
    #[serde(default)]
    pub input_types: Vec<String>,
    /// What they should give.
    #[serde(default)]
    pub output_types: Vec<String>,
    /// Of several that fit, the one no riskier than that.
    #[serde(default)]
    pub preferred_risk_level: Option<RiskLevel>,
}

/// What came of a request (§16.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fulfilment {
    /// Tools for all of it, ready to be called.
    Fulfilled,
    /// Tools for some of it.
    Partial,
    /// None.
    Unavailable,
    /// There are tools, and a person has to allow them first.
    PendingApproval,
    /// There are none, and the agent may make one.
    Creating,
}

/// Answer of `mgp/tools/request`.
#[derive(Debug, Serialize)]
pub struct RequestResult {
    /// What came of it.
    pub status: Fulfilment,
    /// With their whole schemas; they are in the session's cache now.
    pub tools_loaded: Vec<ToolMatch>,
    /// The capabilities no tool was found for.
    pub tools_unavailable: Vec<String>,
    /// The tools that wait for a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_pending: Vec<PendingTool>,
    /// How many tools the session holds now, pinned ones included.
    pub session_tools_count: usize,
    /// What the loaded tools cost.
    pub context_tokens_added: u64,
    /// How to make what is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// What else is worth saying, such as that there is no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// A tool that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingTool {
    /// Under which name it will be called.
    pub name: String,
    /// Its server.
    pub server_id: String,
    /// What its server does not have yet.
    pub permissions: Vec<String>,
}

/// How an agent makes the tool it misses (A-51).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Creation {
    /// In words.
    pub instructions: String,
    /// Within which bounds.
    pub constraints: Constraints,
}

/// The bounds of a tool that an agent makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Constraints {
    /// What to register it with.
    pub register_with: &'static str,
    /// In what it may be written.
    pub languages: Vec<&'static str>,
    /// How its code is judged (§7).
    pub code_safety_level: &'static str,
    /// How far it is trusted.
    pub trust_level: &'static str,
    /// Most bytes of its code.
    pub max_code_size_bytes: usize,
    /// It ends with the session.
    pub session_scoped: bool,
}

request! {
    /// `mgp/tools/session`: what the session holds; answers [`SessionTools`].
    Session {}
}

/// Answer of `mgp/tools/session` (§16.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTools {
    /// What is always in context.
    pub pinned: Vec<String>,
    /// What was used or asked for, the latest first.
    pub cached: Vec<String>,
    /// What both cost.
    pub total_tokens: u64,
    /// What all may cost.
    pub max_tokens: u64,
    /// How that is divided.
    pub tool_context_budget: Budget,
    /// What else is worth saying, such as that there is no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The context budget of tool definitions (§16.8), in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// All of it together.
    pub max_tokens: u64,
    /// For what is pinned.
    pub pinned_reserve: u64,
    /// For the results of one search.
    pub discovery_reserve: u64,
    /// For what is cached.
    pub cache_limit: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max_tokens: 8000,
            pinned_reserve: 2000,
            discovery_reserve: 3000,
            cache_limit: 3000,
        }
    }
}

/// `mgp/tools/call`: calls a tool that was found, for clients that never read their list of tools
/// again. It is a `tools/call` of that tool in everything, its checks and its answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call<'a> {
    /// The tool, by any of its names.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Relayed verbatim.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(default, rename = "_meta")]
    _meta: Option<IgnoredAny>,
    #[serde(default, rename = "_mgp")]
    _mgp: Option<IgnoredAny>,
    #[serde(default, rename = "trace_id")]
    _trace_id: Option<IgnoredAny>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::parse_params;
    use serde_json::json;

    /// MGP-241: the example of §16.5, each member by itself, and what none of them is.
    #[test]
    fn a_search_is_read_as_the_document_writes_it() {
        let text = r#"{"query":"read file contents from disk","strategy":"semantic","max_results":5,
            "filter":{"categories":["filesystem"],"risk_level_max":"moderate","status":"connected"}}"#;
        let search: Discover = parse_params(Some(text)).unwrap();
        assert_eq!(search.strategy, Some(Strategy::Semantic));
        assert_eq!(search.max_results, Some(5));
        assert_eq!(search.filter.categories, ["filesystem"]);
        assert_eq!(search.filter.risk_level_max, Some(RiskLevel::Moderate));
        assert_eq!(search.filter.status, Some(Status::Connected));
        let short: Discover =
            parse_params(Some(r#"{"query":"x","_meta":{},"trace_id":"t"}"#)).unwrap();
        assert_eq!((short.strategy, short.filter), (None, Filter::default()));
        for (bad, told) in [
            ("{}", "query"),
            (r#"{"query":"x","strategy":"magic"}"#, "hybrid"),
            (r#"{"query":"x","max_results":-1}"#, "invalid value"),
            (
                r#"{"query":"x","filter":{"risk":"safe"}}"#,
                "risk_level_max",
            ),
        ] {
            let error = parse_params::<Discover>(Some(bad)).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    /// MGP-242: the members of the document, and those beside them only where they say something.
    #[test]
    fn an_answer_has_the_shape_of_the_document() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let found = ToolMatch {
            name: "files__read_file".into(),
            server_id: "files".into(),
            tool_id: "files:read_file".into(),
            description: "Reads".into(),
            relevance_score: Some(0.95),
            fits: true,
            input_schema: raw(r#"{"type":"object","x":1.50}"#),
            security: Some(raw(r#"{"risk_level":"moderate"}"#)),
        };
        let mut answer = DiscoverToolsResult {
            tools: vec![found],
            total_available: 47,
            search_strategy: Strategy::Semantic,
            fallback_strategy: None,
            query_time_ms: 12,
            left_out: 0,
            note: None,
        };
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(
            text,
            r#"{"tools":[{"name":"files__read_file","server_id":"files","tool_id":"files:read_file","description":"Reads","relevance_score":0.95,"fits":true,"inputSchema":{"type":"object","x":1.50},"security":{"risk_level":"moderate"}}],"total_available":47,"search_strategy":"semantic","query_time_ms":12}"#
        );
        answer.fallback_strategy = Some(Strategy::Keyword);
        answer.left_out = 2;
        let told = serde_json::to_value(&answer).unwrap();
        assert_eq!(told["fallback_strategy"], "keyword");
        assert_eq!(told["left_out"], 2);
    }

    /// MGP-248: the example of §16.6, and the least a request can say.
    #[test]
    fn a_request_for_tools_is_read_as_the_document_writes_it() {
        let text = r#"{"reason":"capability_gap","context":"need statistics","requirements":{
            "capabilities":["data_analysis","statistics"],"input_types":["csv"],
            "output_types":["numeric"],"preferred_risk_level":"safe"},
            "task_trace_id":"550e8400-e29b-41d4-a716-446655440000"}"#;
        let request: Request = parse_params(Some(text)).unwrap();
        assert_eq!(request.requirements.capabilities.len(), 2);
        assert_eq!(
            request.requirements.preferred_risk_level,
            Some(RiskLevel::Safe)
        );
        let least = r#"{"requirements":{"capabilities":["x"]}}"#;
        let least: Request = parse_params(Some(least)).unwrap();
        assert_eq!(least.reason, Reason::CapabilityGap);
        assert!(parse_params::<Request>(Some("{}")).is_err());
        assert!(parse_params::<Request>(Some(r#"{"requirements":{"capability":"x"}}"#)).is_err());
    }

    /// MGP-249..MGP-254: the five words, and what is not there is not said.
    #[test]
    fn what_came_of_a_request_is_one_of_five_words() {
        use Fulfilment::{Creating, Fulfilled, Partial, PendingApproval, Unavailable};
        let words = [Fulfilled, Partial, Unavailable, PendingApproval, Creating];
        assert_eq!(
            serde_json::to_value(words).unwrap(),
            json!([
                "fulfilled",
                "partial",
                "unavailable",
                "pending_approval",
                "creating"
            ])
        );
        let answer = RequestResult {
            status: Unavailable,
            tools_loaded: Vec::new(),
            tools_unavailable: vec!["statistics".into()],
            tools_pending: Vec::new(),
            session_tools_count: 4,
            context_tokens_added: 0,
            creation: None,
            note: None,
        };
        assert_eq!(
            serde_json::to_value(&answer).unwrap(),
            json!({"status": "unavailable", "tools_loaded": [], "tools_unavailable": ["statistics"],
                "session_tools_count": 4, "context_tokens_added": 0})
        );
    }

    /// MGP-263: the figures of §16.8.
    #[test]
    fn the_budget_has_the_figures_of_the_document() {
        let budget = Budget::default();
        let text = r#"{"max_tokens":8000,"pinned_reserve":2000,"discovery_reserve":3000,"cache_limit":3000}"#;
        assert_eq!(serde_json::to_string(&budget).unwrap(), text);
        let some: Budget = serde_json::from_str(r#"{"cache_limit":500}"#).unwrap();
        assert_eq!((some.max_tokens, some.cache_limit), (8000, 500));
    }

    /// A call of what was found carries its arguments to the byte.
    #[test]
    fn arguments_of_a_call_are_not_read() {
        let text = r#"{"name":"a\u005fb","arguments":{"n":1.50}}"#;
        let call: Call<'_> = parse_params(Some(text)).unwrap();
        assert_eq!(call.name, "a_b");
        assert_eq!(call.arguments.unwrap().get(), r#"{"n":1.50}"#);
        assert!(parse_params::<Call<'_>>(Some(r#"{"arguments":{}}"#)).is_err());
    }
}
