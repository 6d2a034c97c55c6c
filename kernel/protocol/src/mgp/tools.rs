//! `mgp/tools/*`: tool search in place of reading all definitions (MGP §16). As methods, and as tools of
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

/// The default number of search results (§16.5).
pub const DEFAULT_RESULTS: usize = 5;

/// The search strategy (§16.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// By keywords, tolerating typos in names.
    Keyword,
    /// By meaning.
    Semantic,
    /// By category.
    Category,
    /// By keywords and meaning together: the default.
    Hybrid,
}

impl Strategy {
    const ALL: [Self; 4] = [Self::Keyword, Self::Semantic, Self::Category, Self::Hybrid];

    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keyword => "keyword",
            Self::Semantic => "semantic",
            Self::Category => "category",
            Self::Hybrid => "hybrid",
        }
    }

    /// Parses the value.
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
        /// The wanted function.
        query: String,
        /// The strategy; hybrid if absent.
        #[serde(default)]
        strategy: Option<Strategy>,
        /// The most results; [`DEFAULT_RESULTS`] if absent.
        #[serde(default)]
        max_results: Option<usize>,
        /// The conditions that results must meet.
        #[serde(default)]
        filter: Filter,
    }
}

request! {
    /// `mgp_tools_describe`; answers [`DescribedTools`].
    Describe {
        /// The names of tools, as a search answered them; at most [`DESCRIBED_MAX`].
        names: Vec<String>,
    }
}

/// The most tools in one [`Describe`].
pub const DESCRIBED_MAX: usize = 16;

/// The answer to [`Describe`].
#[derive(Debug, Serialize)]
pub struct DescribedTools {
    /// The definitions, as in a list.
    pub tools: Vec<Box<RawValue>>,
    /// The names that no tool of the caller has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// The conditions of results; all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// In one of these categories, or below; any if empty.
    #[serde(default)]
    pub categories: Vec<String>,
    /// The maximum risk, by the kernel's own level.
    #[serde(default)]
    pub risk_level_max: Option<RiskLevel>,
    /// The state of the server; connected if absent.
    #[serde(default)]
    pub status: Option<Status>,
}

/// The answer to `mgp/tools/discover` (§16.5).
#[derive(Debug, Serialize)]
pub struct DiscoverToolsResult {
    /// The best match first.
    pub tools: Vec<DiscoveredTool>,
    /// Skills that match by words, the best first (SEP-2640).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<SkillMatch>,
    /// The number of searched tools: those visible to the caller that pass the filter.
    pub total_available: usize,
    /// The strategy used.
    pub search_strategy: Strategy,
    /// The strategy used, if the requested one was not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_strategy: Option<Strategy>,
    /// The duration.
    pub query_time_ms: u64,
    /// The number of results omitted because of the context budget (§16.8).
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// A note for the caller: no good match, or a truncated query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A found skill. It is read with `resources/read`.
#[derive(Debug, Serialize, Deserialize)]
pub struct SkillMatch {
    /// The URI of its SKILL.md for this caller.
    pub uri: String,
    /// Its server.
    pub server: String,
    /// Its name, as its server says: a label, not an identifier.
    pub name: String,
    /// What it is for, as its server says.
    pub description: String,
    /// True if it is considered a match at all.
    pub fits: bool,
    /// True if its server publishes no digests for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
}

/// A found tool.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum DiscoveredTool {
    /// With all data for calling it.
    Whole(ToolMatch),
    /// In short.
    Brief(BriefMatch),
}

/// A found tool in short: enough to choose it, and to call it where its arguments are simple.
#[derive(Debug, Serialize)]
pub struct BriefMatch {
    /// Its name for this caller.
    pub name: String,
    /// The first sentence of the server's description.
    pub does: String,
    /// Its arguments: `path, [limit: integer]`. Texts have no type, optional ones are in brackets.
    pub arguments: String,
    /// True if it is considered a match at all.
    pub fits: bool,
    /// What a person confirmed of it: `read` or `write`. Without it, it may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<&'static str>,
}

/// A found tool, with all data for calling it.
#[derive(Debug, Serialize)]
pub struct ToolMatch {
    /// Its name for this caller.
    pub name: String,
    /// Its server.
    pub server_id: String,
    /// `server:tool`, the same for every caller.
    pub tool_id: String,
    /// The server's description.
    pub description: String,
    /// The relevance, from 0 to 1; `None` for a tool that was requested and not ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relevance_score: Option<f32>,
    /// True if it is considered a match at all: some tool is always the best one.
    pub fits: bool,
    /// What a person confirmed of it: `read` or `write`. Without it, it may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<&'static str>,
    /// The whole schema, as sent by its server.
    #[serde(rename = "inputSchema")]
    pub input_schema: Box<RawValue>,
    /// The server's declaration, with the kernel's own level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Box<RawValue>>,
}

request! {
    /// `mgp/tools/request`; answers [`RequestResult`].
    Request {
        /// The kind of need.
        #[serde(default)]
        reason: Reason,
        /// The task, described in words.
        #[serde(default)]
        context: String,
        /// The requirements.
        requirements: Requirements,
        /// The trace of the task, for the audit.
        #[serde(default)]
        task_trace_id: Option<String>,
    }
}

/// The reason of a request for tools: for the audit, without effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A capability is missing.
    #[default]
    CapabilityGap,
    /// The available tools are too slow (later drafts).
    Performance,
    /// Other tools are preferred (later drafts).
    Preference,
}

/// The requirements of an agent (§16.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    /// The wanted capabilities.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The input types.
    #[serde(default)]
    pub input_types: Vec<String>,
    /// The output types.
    #[serde(default)]
    pub output_types: Vec<String>,
    /// The preferred maximum risk among several matches.
    #[serde(default)]
    pub preferred_risk_level: Option<RiskLevel>,
}

/// The result of a request (§16.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fulfilment {
    /// Tools for all requirements, ready to be called.
    Fulfilled,
    /// Tools for some requirements.
    Partial,
    /// No tools.
    Unavailable,
    /// There are tools that need a person's approval first.
    PendingApproval,
    /// There are none, and the agent may create one.
    Creating,
}

/// The answer to `mgp/tools/request`.
#[derive(Debug, Serialize)]
pub struct RequestResult {
    /// The result.
    pub status: Fulfilment,
    /// The loaded tools with their whole schemas; they are in the session's cache now.
    pub tools_loaded: Vec<ToolMatch>,
    /// The capabilities without a tool.
    pub tools_unavailable: Vec<String>,
    /// The tools that wait for an approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_pending: Vec<PendingTool>,
    /// The number of tools in the session, including pinned ones.
    pub session_tools_count: usize,
    /// The cost of the loaded tools.
    pub context_tokens_added: u64,
    /// Instructions for creating a missing tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// A note, such as that there is no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// A tool that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingTool {
    /// Its future name for this caller.
    pub name: String,
    /// Its server.
    pub server_id: String,
    /// The permissions its server lacks.
    pub permissions: Vec<String>,
}

/// Instructions for creating a missing tool (A-51).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Creation {
    /// The instructions.
    pub instructions: String,
    /// The limits.
    pub constraints: Constraints,
}

/// The limits of a tool created by an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Constraints {
    /// The method to register it.
    pub register_with: &'static str,
    /// The allowed languages.
    pub languages: Vec<&'static str>,
    /// The code safety level (§7).
    pub code_safety_level: &'static str,
    /// Its trust level.
    pub trust_level: &'static str,
    /// The most bytes of its code.
    pub max_code_size_bytes: usize,
    /// True if it ends with the session.
    pub session_scoped: bool,
}

request! {
    /// `mgp/tools/session`: the tools of the session; answers [`SessionTools`].
    Session {}
}

/// The answer to `mgp/tools/session` (§16.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTools {
    /// The pinned tools, always in context.
    pub pinned: Vec<String>,
    /// The used or requested tools, the latest first.
    pub cached: Vec<String>,
    /// The cost of both.
    pub total_tokens: u64,
    /// The total budget.
    pub max_tokens: u64,
    /// The parts of the budget.
    pub tool_context_budget: Budget,
    /// A note, such as that there is no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The context budget of tool definitions (§16.8), in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// The total.
    pub max_tokens: u64,
    /// For pinned tools.
    pub pinned_reserve: u64,
    /// For the results of one search.
    pub discovery_reserve: u64,
    /// For cached tools.
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

/// `mgp/tools/call`: calls a found tool, for clients that do not reload their list of tools. It is a
/// `tools/call` of that tool in all respects, with its checks and its answer.
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

    /// MGP-241: the example of §16.5, each member separately, and invalid ones.
    #[test]
    fn search_is_parsed_as_in_the_document() {
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
        for (bad, json) in [
            ("{}", "query"),
            (r#"{"query":"x","strategy":"magic"}"#, "hybrid"),
            (r#"{"query":"x","max_results":-1}"#, "invalid value"),
            (
                r#"{"query":"x","filter":{"risk":"safe"}}"#,
                "risk_level_max",
            ),
        ] {
            let error = parse_params::<Discover>(Some(bad)).unwrap_err().to_string();
            assert!(error.contains(json), "{error}");
        }
    }

    /// MGP-242: the members of the document, and further ones only if they have a value.
    #[test]
    fn answer_has_the_shape_of_the_document() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let found = ToolMatch {
            name: "files__read_file".into(),
            server_id: "files".into(),
            tool_id: "files:read_file".into(),
            description: "Reads".into(),
            relevance_score: Some(0.95),
            fits: true,
            effect: None,
            input_schema: raw(r#"{"type":"object","x":1.50}"#),
            security: Some(raw(r#"{"risk_level":"moderate"}"#)),
        };
        let mut answer = DiscoverToolsResult {
            tools: vec![DiscoveredTool::Whole(found)],
            skills: Vec::new(),
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
        let json = serde_json::to_value(&answer).unwrap();
        assert_eq!(json["fallback_strategy"], "keyword");
        assert_eq!(json["left_out"], 2);
    }

    /// MGP-248: the example of §16.6, and the minimal request.
    #[test]
    fn tool_request_is_parsed_as_in_the_document() {
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

    /// MGP-249..MGP-254: the five results; absent members are omitted.
    #[test]
    fn fulfilment_has_five_values() {
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

    /// MGP-263: the numbers of §16.8.
    #[test]
    fn budget_has_the_numbers_of_the_document() {
        let budget = Budget::default();
        let text = r#"{"max_tokens":8000,"pinned_reserve":2000,"discovery_reserve":3000,"cache_limit":3000}"#;
        assert_eq!(serde_json::to_string(&budget).unwrap(), text);
        let some: Budget = serde_json::from_str(r#"{"cache_limit":500}"#).unwrap();
        assert_eq!((some.max_tokens, some.cache_limit), (8000, 500));
    }

    /// A call of a found tool has its arguments unchanged.
    #[test]
    fn call_arguments_are_relayed_unparsed() {
        let text = r#"{"name":"a\u005fb","arguments":{"n":1.50}}"#;
        let call: Call<'_> = parse_params(Some(text)).unwrap();
        assert_eq!(call.name, "a_b");
        assert_eq!(call.arguments.unwrap().get(), r#"{"n":1.50}"#);
        assert!(parse_params::<Call<'_>>(Some(r#"{"arguments":{}}"#)).is_err());
    }
}
