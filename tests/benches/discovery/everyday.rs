//! Requests in plain words over the tools of seven everyday servers: how often the right tool comes
//! first, and how often it is said that none fits.

use std::fs;
use std::path::Path;

use mgp_engine::tools::index::{
    Evidence, Index, IndexSearch, RESULTS_MAX, SearchFilter, SearchRequest, Strategy,
};
use mgp_tests::load::{Cell, Table};
use serde::Deserialize;

use super::collection::Collection;
use super::vectors::VectorCache;

const WAYS: [Strategy; 3] = [Strategy::Keyword, Strategy::Semantic, Strategy::Hybrid];

/// What somebody asks for, and what does it; nothing does where no tool stands.
#[derive(Deserialize)]
struct Asked {
    request: String,
    tools: Vec<String>,
}

/// What came of it.
struct Came {
    /// At which place the first right tool stood, from 0.
    place: Option<usize>,
    first: String,
    fits: bool,
    evidence: Evidence,
}

pub(crate) struct Everyday {
    index: Index,
    halves: [(&'static str, Vec<Asked>); 2],
}

impl Everyday {
    pub(crate) fn read(folder: &Path, vectors: &mut VectorCache<'_>) -> Self {
        let text =
            |name: &str| fs::read_to_string(folder.join(name)).expect("it is in the repository");
        let half = |name| serde_json::from_str(&text(name)).expect("requests");
        let collection = Collection {
            tools: serde_json::from_str(&text("tools.json")).expect("tools"),
            tasks: Vec::new(),
        };
        Self {
            index: collection.index(vectors),
            halves: [
                ("tuning", half("tuning.json")),
                ("held out", half("held_out.json")),
            ],
        }
    }

    fn came(&self, asked: &Asked, way: Strategy, vectors: &mut VectorCache<'_>) -> Came {
        let request = SearchRequest::parse(&asked.request);
        let vectors = vectors.request_vectors(&asked.request);
        let found = self.index.search(&IndexSearch {
            request: &request,
            vectors: &vectors,
            strategy: way,
            filter: &SearchFilter::default(),
            limit: RESULTS_MAX,
            is_visible: &|_| true,
        });
        let name = |hit: &mgp_engine::tools::index::SearchHit<'_>| {
            format!("{}:{}", hit.entry.server, hit.entry.name)
        };
        let best = found.hits.first();
        Came {
            place: found
                .hits
                .iter()
                .position(|hit| asked.tools.contains(&name(hit))),
            first: best.map(name).unwrap_or_default(),
            fits: found.hits.iter().any(|hit| hit.is_match),
            evidence: best.map_or(NOTHING, |hit| hit.evidence),
        }
    }

    /// Of each half and ranking: how often the right one is first, and what is said where nothing fits.
    pub(crate) fn table(&self, vectors: &mut VectorCache<'_>) -> Table {
        let mut rows = Vec::new();
        for (half, all) in &self.halves {
            for way in WAYS {
                let came = |asked: &Asked| (asked.tools.is_empty(), self.came(asked, way, vectors));
                let (none, some): (Vec<_>, Vec<_>) =
                    all.iter().map(came).partition(|(nothing, _)| *nothing);
                let share = |all: &[(bool, Came)], which: &dyn Fn(&Came) -> bool| {
                    let count = all.iter().filter(|(_, came)| which(came)).count();
                    Cell::Number(count as f64 / all.len() as f64, 2)
                };
                let first = |most: usize| move |came: &Came| came.place.is_some_and(|at| at < most);
                rows.push(vec![
                    (*half).into(),
                    way.as_str().into(),
                    share(&some, &first(1)),
                    share(&some, &first(3)),
                    share(&some, &|came| !came.fits),
                    share(&none, &|came| came.fits),
                ]);
            }
        }
        Table {
            title: "Everyday requests",
            columns: &[
                "half",
                "ranking",
                "right first",
                "in the first 3",
                "said to fit none, wrongly",
                "said to fit, wrongly",
            ],
            rows,
        }
    }

    /// The tuning half, one by one.
    pub(crate) fn items(&self, vectors: &mut VectorCache<'_>) -> Table {
        let (_, tuning) = &self.halves[0];
        let mut row = |asked: &Asked| {
            let came = self.came(asked, Strategy::Hybrid, vectors);
            let place = came
                .place
                .map_or(Cell::Nothing, |at| Cell::Number((at + 1) as f64, 0));
            let like = came.evidence.similarity.unwrap_or(0.0);
            vec![
                asked.request.as_str().into(),
                place,
                came.first.as_str().into(),
                Cell::Number(like.into(), 2),
                Cell::Number(came.evidence.word_score.unwrap_or(0.0).into(), 2),
                if came.fits { "fits" } else { "none" }.into(),
            ]
        };
        Table {
            title: "Everyday requests of the tuning half",
            columns: &["request", "place", "first", "likeness", "words", "said"],
            rows: tuning.iter().map(&mut row).collect(),
        }
    }
}

/// Where nothing was found.
const NOTHING: Evidence = Evidence {
    similarity: None,
    word_score: None,
};
