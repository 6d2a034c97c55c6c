//! Plain-language requests for the real tools of seven popular servers. The requests are held out: no weight, limit or
//! word was tuned with them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mgp_embedding::Embedder;
use mgp_engine::tools::index::{
    EmbeddingText, Index, IndexDraft, IndexSearch, SearchFilter, SearchHit, SearchRequest,
    SearchResults, ServerIndex, Strategy, Vector,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::security::RiskLevel;
use serde::Deserialize;
use serde_json::Value;

const TOOLS: &str = include_str!("../../../../tests/corpus/everyday_tools/tools.json");
const HELD_OUT: &str = include_str!("../../../../tests/corpus/everyday_tools/held_out.json");

/// docs/performance.md has the measured values; the model may change the result of a request or two.
const RIGHT_FIRST_MIN: f64 = 0.74;
/// The maximum share of first results that are correct but marked as no match, and of requests without a tool that get
/// a match.
const REFUSED_MAX: f64 = 0.3;
const FITTED_MAX: f64 = 0.3;

#[derive(Deserialize)]
struct LabeledRequest {
    request: String,
    tools: Vec<String>,
}

struct Scene {
    model: Embedder,
    index: Index,
    /// Texts of definitions repeat often.
    known: HashMap<String, Vector>,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            model: Embedder::load(2).unwrap(),
            index: Index::default(),
            known: HashMap::new(),
        };
        let tools: Vec<Value> = serde_json::from_str(TOOLS).unwrap();
        let mut servers: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for tool in &tools {
            let server = tool["server_id"].as_str().unwrap();
            servers.entry(server).or_default().push(tool);
        }
        for (id, tools) in servers {
            let server = ServerId::new(id);
            let about = tools[0]["server_description"].as_str().unwrap();
            let drafts = tools.iter().map(|tool| draft(&server, tool)).collect();
            let server_index = ServerIndex::new(&server, about, drafts);
            let server_index = server_index
                .with_vectors(&mut |text: &EmbeddingText| Some(scene.vector(&text.text)));
            scene.index = scene.index.with_server(Arc::new(server_index));
        }
        scene
    }

    fn vector(&mut self, text: &str) -> Vector {
        let make = || Vector::quantize(&self.model.embed(text).unwrap()).unwrap();
        let known = self.known.entry(text.to_owned()).or_insert_with(make);
        known.clone()
    }

    fn search(&mut self, text: &str) -> SearchResults<'_> {
        let request = SearchRequest::parse(text);
        let vectors = request.embedding_texts().iter();
        let vectors: Vec<Vector> = vectors.map(|text| self.vector(text)).collect();
        self.index.search(&IndexSearch {
            request: &request,
            vectors: &vectors,
            strategy: Strategy::Hybrid,
            filter: &SearchFilter::default(),
            limit: 5,
            is_visible: &|_| true,
        })
    }
}

fn draft(server: &ServerId, tool: &Value) -> IndexDraft {
    let (name, raw) = (tool["name"].as_str().unwrap(), tool.to_string());
    let (name, raw) = (Arc::from(name), Arc::from(raw));
    IndexDraft::parse(server, &name, &raw, None, RiskLevel::Moderate)
}

/// Point 6: a request in plain words finds the right tool first, and results show when no tool fits.
#[test]
fn plain_words_find_the_right_tool_first() {
    let mut scene = Scene::new();
    let all: Vec<LabeledRequest> = serde_json::from_str(HELD_OUT).unwrap();
    let (mut first, mut refused, mut fitted) = (0, 0, 0);
    for labeled in &all {
        let found = scene.search(&labeled.request);
        let is_match = found.hits.iter().any(|hit| hit.is_match);
        let name = |hit: &SearchHit<'_>| format!("{}:{}", hit.entry.server, hit.entry.name);
        let is_right = labeled.tools.contains(&name(&found.hits[0]));
        first += usize::from(is_right);
        refused += usize::from(is_right && !is_match);
        fitted += usize::from(labeled.tools.is_empty() && is_match);
    }
    let none = all
        .iter()
        .filter(|labeled| labeled.tools.is_empty())
        .count();
    let share = |count: usize, of: usize| count as f64 / of as f64;
    let shares = [
        share(first, all.len() - none),
        share(refused, first),
        share(fitted, none),
    ];
    println!("right first, right but no match, match without a tool: {shares:.2?}");
    assert!(shares[0] >= RIGHT_FIRST_MIN, "{shares:.2?}");
    assert!(
        shares[1] <= REFUSED_MAX && shares[2] <= FITTED_MAX,
        "{shares:.2?}"
    );
}
