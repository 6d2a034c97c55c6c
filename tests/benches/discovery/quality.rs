//! How many of the tools that people found were needed are found.

use std::collections::BTreeSet;

use mgp_engine::tools::index::{
    Index, IndexSearch, RESULTS_MAX, SearchFilter, SearchRequest, Strategy,
};
use mgp_tests::load::{Cell, Table};

use super::collection::Collection;
use super::vectors::VectorCache;

/// How it is searched.
const WAYS: [Strategy; 3] = [Strategy::Keyword, Strategy::Semantic, Strategy::Hybrid];

/// Names that were found, the best first, each once.
fn names(index: &Index, vectors: &mut VectorCache<'_>, text: &str, way: Strategy) -> Vec<String> {
    let request = SearchRequest::parse(text);
    let vectors = vectors.request_vectors(text);
    let found = index.search(&IndexSearch {
        request: &request,
        vectors: &vectors,
        strategy: way,
        filter: &SearchFilter::default(),
        limit: RESULTS_MAX,
        is_visible: &|_| true,
    });
    let mut seen = BTreeSet::new();
    let names = found.hits.iter().map(|hit| hit.entry.name.to_string());
    names.filter(|name| seen.insert(name.clone())).collect()
}

#[derive(Default)]
struct Marks {
    asked: f64,
    at_5: f64,
    at_10: f64,
    gain: f64,
    first: f64,
}

impl Marks {
    fn add(&mut self, names: &[String], gold: &BTreeSet<&str>) {
        let right = |name: &String| gold.contains(name.as_str());
        let share = |most: usize| {
            let found = names.iter().take(most).filter(|name| right(name)).count();
            found as f64 / gold.len() as f64
        };
        let worth = |place: usize| 1.0 / (place as f64 + 2.0).log2();
        let head = names.iter().take(10).enumerate();
        let gain: f64 = head
            .filter(|(_, name)| right(name))
            .map(|(at, _)| worth(at))
            .sum();
        let best: f64 = (0..gold.len().min(10)).map(worth).sum();
        self.asked += 1.0;
        self.at_5 += share(5);
        self.at_10 += share(10);
        self.gain += gain / best;
        self.first += names
            .iter()
            .position(right)
            .map_or(0.0, |at| 1.0 / (at + 1) as f64);
    }

    fn row(&self, query: &str, way: &str, united: Option<[f64; 2]>) -> Vec<Cell> {
        let mean = |sum: f64| Cell::Number(sum / self.asked, 3);
        let united = united.map_or([Cell::Nothing, Cell::Nothing], |shares| {
            shares.map(|share| Cell::Number(share, 3))
        });
        let marks = [self.at_5, self.at_10, self.gain, self.first].map(mean);
        [query.into(), way.into()]
            .into_iter()
            .chain(marks)
            .chain(united)
            .collect()
    }
}

pub(crate) fn tables(
    collection: &Collection,
    index: &Index,
    vectors: &mut VectorCache<'_>,
) -> Vec<Table> {
    let mut rows = Vec::new();
    for way in WAYS {
        let (mut questions, mut steps) = (Marks::default(), Marks::default());
        let mut united = [0.0; 2];
        for task in &collection.tasks {
            let gold: BTreeSet<&str> = task.gold.iter().map(String::as_str).collect();
            questions.add(&names(index, vectors, &task.query, way), &gold);
            let found = task
                .steps
                .iter()
                .map(|step| names(index, vectors, step, way));
            let found: Vec<_> = found.collect();
            for names in &found {
                steps.add(names, &gold);
            }
            for (sum, most) in united.iter_mut().zip([3, 5]) {
                let heads = found.iter().flat_map(|names| names.iter().take(most));
                let heads: BTreeSet<&str> = heads.map(String::as_str).collect();
                *sum += gold.intersection(&heads).count() as f64 / gold.len() as f64;
            }
        }
        let tasks = collection.tasks.len() as f64;
        rows.push(questions.row("question", way.as_str(), None));
        rows.push(steps.row("steps", way.as_str(), Some(united.map(|sum| sum / tasks))));
    }
    vec![Table {
        title: "Tools found",
        columns: &[
            "query",
            "ranking",
            "recall@5",
            "recall@10",
            "nDCG@10",
            "MRR",
            "first 3 of each step",
            "first 5 of each step",
        ],
        rows,
    }]
}

/// What the default ranking did not find: not in the first ten of the question, nor in the first
/// five of any step.
pub(crate) fn misses(
    collection: &Collection,
    index: &Index,
    vectors: &mut VectorCache<'_>,
) -> Table {
    let way = Strategy::Hybrid;
    let mut rows = Vec::new();
    for task in &collection.tasks {
        let found = names(index, vectors, &task.query, way);
        let steps = task
            .steps
            .iter()
            .map(|step| names(index, vectors, step, way));
        let steps: Vec<_> = steps.collect();
        for gold in &task.gold {
            let place = |names: &Vec<String>| names.iter().position(|name| name == gold);
            let question = place(&found);
            let step = steps.iter().filter_map(place).min();
            let missed = |place: Option<usize>, most| place.is_none_or(|place| place >= most);
            if missed(question, 10) {
                let shown = |place: Option<usize>| {
                    place.map_or(Cell::Nothing, |place| Cell::Number((place + 1) as f64, 0))
                };
                let text: String = task.query.trim().chars().take(60).collect();
                let at_step = if missed(step, 5) { "missed" } else { "found" };
                let row = [
                    text.into(),
                    gold.as_str().into(),
                    shown(question),
                    shown(step),
                ];
                rows.push(row.into_iter().chain([at_step.into()]).collect());
            }
        }
    }
    Table {
        title: "Tools not among the first ten of the question",
        columns: &[
            "question",
            "tool",
            "place",
            "best place at a step",
            "by steps",
        ],
        rows,
    }
}
