//! `mgp/index/*`: the operator's search of the tool index (MGP §16.4).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::discovery::security::RiskLevel;
use super::tools::SkillMatch;
use crate::mcp::methods;

methods! {
    "mgp/index/search" => Search,
}

/// `mgp/index/search`; answers [`SearchResult`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The wanted function.
    pub query: String,
    /// `keyword`, `semantic`, `category` or `hybrid`; default `hybrid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_results: Option<usize>,
    /// Includes subcategories; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// The maximum risk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_level_max: Option<RiskLevel>,
    /// Search the tools that this agent may call; all tools if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The search result.
#[derive(Debug, Serialize, Deserialize)]
pub struct SearchResult {
    /// The best match first.
    pub tools: Vec<Tool>,
    /// Skills that match by words, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<SkillMatch>,
    /// The number of searched tools.
    pub total_available: usize,
    /// The strategy used: keywords if semantic search was requested and not available.
    pub search_strategy: String,
    /// The time it took.
    pub query_time_ms: f64,
    /// A note for the caller: no good match, or a truncated query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The coverage of the index.
    pub index: IndexCoverage,
}

/// A tool in the index.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tool {
    /// `server:tool`.
    pub tool_id: String,
    /// Its server.
    pub server_id: String,
    /// The server's own name.
    pub name: String,
    /// The server's description.
    pub description: String,
    /// The relevance, from 0 to 1.
    pub relevance_score: f32,
    /// True if it is considered a match at all.
    pub fits: bool,
    /// The kernel's risk level.
    pub risk_level: RiskLevel,
    /// Its categories.
    pub categories: Vec<String>,
    /// The whole schema.
    #[serde(rename = "inputSchema")]
    pub input_schema: Option<Box<RawValue>>,
}

/// The coverage of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexCoverage {
    /// The number of tools found by keywords.
    pub tools: usize,
    /// The number of tools found by meaning.
    pub by_meaning: usize,
    /// The number of texts waiting for their embedding.
    pub waiting: usize,
    /// The number of new embeddings since the start.
    pub embedded: u64,
    /// The process id of the built-in model, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_process: Option<u32>,
    /// The number of consecutive failures of that process.
    #[serde(default, skip_serializing_if = "is_none")]
    pub model_failures: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}
