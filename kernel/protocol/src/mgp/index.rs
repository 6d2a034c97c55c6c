//! `mgp/index/*`: the operator's search of the tool index (MGP §16.4).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::discovery::security::RiskLevel;
use crate::mcp::methods;

methods! {
    "mgp/index/search" => Search,
}

/// `mgp/index/search`; answers [`SearchResult`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// What the tool should do.
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
    /// The highest risk allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_level_max: Option<RiskLevel>,
    /// Among the tools that this agent may call; among all when nobody is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The result.
#[derive(Debug, Serialize, Deserialize)]
pub struct SearchResult {
    /// The best first.
    pub tools: Vec<Tool>,
    /// How many there were to choose from.
    pub total_available: usize,
    /// How it was searched: by words where meaning was asked for and not to be had.
    pub search_strategy: String,
    /// The time it took.
    pub query_time_ms: f64,
    /// What the asker should know: that nothing fits well, or that not all of the query was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How far the index is.
    pub index: IndexCoverage,
}

/// A tool in the index.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tool {
    /// `server:tool`.
    pub tool_id: String,
    /// Its server.
    pub server_id: String,
    /// The server's own name for it.
    pub name: String,
    /// As the server describes it.
    pub description: String,
    /// How well it fits, from 0 to 1.
    pub relevance_score: f32,
    /// Whether it does what is looked for at all, as far as that can be told.
    pub fits: bool,
    /// The kernel's own judgement.
    pub risk_level: RiskLevel,
    /// Its categories.
    pub categories: Vec<String>,
    /// The whole schema.
    #[serde(rename = "inputSchema")]
    pub input_schema: Option<Box<RawValue>>,
}

/// How far the index is with what is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexCoverage {
    /// Tools that can be found by words.
    pub tools: usize,
    /// Tools that can be found by meaning.
    pub by_meaning: usize,
    /// Texts that wait to be embedded.
    pub waiting: usize,
    /// Texts that were embedded since the start, and were not known from before.
    pub embedded: u64,
    /// The process that runs the model in the program, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_process: Option<u32>,
    /// How often in a row that process failed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub model_failures: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}
