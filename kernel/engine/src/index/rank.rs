//! Scores and their order.

use super::entry::Entry;
use super::postings::worth;
use super::request::{RESULTS_MAX, Search, Strategy};
use super::shelf::Shelf;
use super::spelling::{Guess, Misspelt};
use super::vectors::Vector;
use super::words::Term;
use super::{Found, Hit};

/// What a word counts beside the meaning. Both are measured by how far a tool stands out of all
/// others; words alone are trusted a little less.
const WORDS: f32 = 0.8;
/// How much of what its server's best tools reach is added to a tool: a task seldom needs one tool
/// of a server.
const COMPANY: f32 = 0.5;
/// How many tools make the company.
const BEST: usize = 3;
/// Words stand out by so many spreads at most. A word that a single tool of 100,000 has would
/// otherwise drown every meaning.
const SPREADS_MAX: f32 = 8.0;
/// Words of a request that are guessed at, and guesses taken for each.
const MISSPELT_MAX: usize = 16;
const GUESSES_MAX: usize = 4;
/// Scores at which a tool is shown as half relevant, by words and by both.
const HALF_BY_WORDS: f32 = 10.0;
const HALF_BY_BOTH: f32 = 6.0;

/// What can be seen of the index.
struct Scene<'a> {
    /// Each with the number of its first tool.
    shelves: Vec<(usize, &'a Shelf)>,
    seen: Vec<bool>,
    count: usize,
}

pub(super) fn search<'a>(
    shelves: impl Iterator<Item = &'a Shelf>,
    search: &Search<'_>,
) -> Found<'a> {
    let scene = Scene::of(shelves, search);
    let (strategy, scores) = scene.scores(search);
    let mut hits: Vec<(f32, usize)> = scores
        .into_iter()
        .enumerate()
        .filter(|(tool, score)| scene.seen[*tool] && *score > 0.0)
        .map(|(tool, score)| (score, tool))
        .collect();
    // Tools are numbered by server and by their place in its list: equals stay in that order.
    let better = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    let most = search.most.min(RESULTS_MAX);
    if most == 0 {
        hits.clear();
    } else if hits.len() > most {
        hits.select_nth_unstable_by(most - 1, better);
        hits.truncate(most);
    }
    hits.sort_unstable_by(better);
    let hit = |(score, tool)| Hit {
        entry: scene.entry(tool),
        score,
    };
    Found {
        hits: hits.into_iter().map(hit).collect(),
        visible: scene.count,
        strategy,
    }
}

impl<'a> Scene<'a> {
    fn of(all: impl Iterator<Item = &'a Shelf>, search: &Search<'_>) -> Self {
        let mut shelves = Vec::new();
        let mut seen = Vec::new();
        for shelf in all {
            let first = seen.len();
            let visible = |entry| search.filter.takes(entry) && (search.visible)(entry);
            seen.extend(shelf.entries.iter().map(visible));
            // A server of which nothing is seen is not looked at again.
            if seen[first..].contains(&true) {
                shelves.push((first, shelf));
            } else {
                seen.truncate(first);
            }
        }
        Self {
            count: seen.iter().filter(|seen| **seen).count(),
            shelves,
            seen,
        }
    }

    fn entry(&self, tool: usize) -> &'a Entry {
        let shelf = self.shelves.partition_point(|(first, _)| *first <= tool) - 1;
        let (first, shelf) = self.shelves[shelf];
        &shelf.entries[tool - first]
    }

    /// The scores, from 0 to 1, and by what strategy they were reached.
    fn scores(&self, search: &Search<'_>) -> (Strategy, Vec<f32>) {
        let like = match search.strategy {
            Strategy::Semantic | Strategy::Hybrid => self.likeness(search),
            Strategy::Keyword | Strategy::Category => None,
        };
        let words = match (search.strategy, &like) {
            (Strategy::Semantic, Some(_)) => Vec::new(),
            _ => self.words(search),
        };
        let by_words = |score: f32| score / (score + HALF_BY_WORDS);
        match (search.strategy, like) {
            (Strategy::Semantic, Some(like)) => {
                let like = like.into_iter().map(|like| like.unwrap_or(0.0));
                let scores = like.map(|like| like.clamp(0.0, 1.0)).collect();
                (Strategy::Semantic, scores)
            }
            (Strategy::Hybrid, Some(like)) => {
                let words = self.standing_out(words, search);
                let both = self.with_company(together(&words, &like));
                let score = |score: f32| score.max(0.0) / (score.max(0.0) + HALF_BY_BOTH);
                (Strategy::Hybrid, both.into_iter().map(score).collect())
            }
            // Who asks for a category wants what stands in it, whatever the words.
            (Strategy::Category, _) => {
                let score = |score| by_words(score).max(f32::EPSILON);
                (Strategy::Category, words.into_iter().map(score).collect())
            }
            _ => (Strategy::Keyword, words.into_iter().map(by_words).collect()),
        }
    }

    fn words(&self, search: &Search<'_>) -> Vec<f32> {
        let mut scores = vec![0.0; self.seen.len()];
        let mut misspelt = Vec::new();
        for (term, word) in &search.request.words {
            if !self.add(*term, 1.0, &mut scores) {
                misspelt.extend(Misspelt::read(word));
            }
        }
        for word in misspelt.iter().take(MISSPELT_MAX) {
            for guess in self.guesses(word) {
                let share = 1.0 / (1 + guess.distance) as f32;
                self.add(guess.term, share, &mut scores);
            }
        }
        scores
    }

    /// Adds what a word is worth to each tool that has it. False when no tool has.
    fn add(&self, term: Term, share: f32, scores: &mut [f32]) -> bool {
        let mut having = Vec::new();
        for (first, shelf) in &self.shelves {
            let tools = shelf.postings.tools(term).iter();
            let tools = tools.map(|(tool, weight)| (first + *tool as usize, *weight));
            having.extend(tools.filter(|(tool, _)| self.seen[*tool]));
        }
        for (tool, weight) in &having {
            scores[*tool] += share * worth(*weight, self.count, having.len());
        }
        !having.is_empty()
    }

    fn guesses(&self, word: &Misspelt) -> Vec<Guess> {
        let near = |(first, shelf): &(usize, &'a Shelf)| {
            let names = shelf.names.near(word, &self.seen[*first..]);
            names.collect::<Vec<_>>()
        };
        let mut guesses: Vec<Guess> = self.shelves.iter().flat_map(near).collect();
        guesses.sort_unstable();
        guesses.dedup();
        guesses.truncate(GUESSES_MAX);
        guesses
    }

    /// How like each tool is to what is looked for; `None` when that has no vector, or no tool has.
    fn likeness(&self, search: &Search<'_>) -> Option<Vec<Option<f32>>> {
        let (whole, parts) = search.meanings.split_first()?;
        let mut like = self.like(whole)?;
        if !parts.is_empty() {
            self.mix_in(parts, &mut like);
        }
        Some(like)
    }

    fn like(&self, meaning: &Vector) -> Option<Vec<Option<f32>>> {
        let mut like = vec![None; self.seen.len()];
        let mut some = false;
        for (first, shelf) in &self.shelves {
            for (row, likeness) in shelf.rows.likeness(meaning).enumerate() {
                like[first + row] = likeness.filter(|_| self.seen[first + row]);
                some |= like[first + row].is_some();
            }
        }
        some.then_some(like)
    }

    /// Half of it by the whole and half by the part that a tool fits best. Parts are held against
    /// each other by how far a tool stands out: a vague one is a little like everything.
    fn mix_in(&self, parts: &[Vector], like: &mut [Option<f32>]) {
        let mut best = vec![f32::NEG_INFINITY; like.len()];
        for part in parts.iter().filter_map(|part| self.like(part)) {
            let (mean, spread) = mean_and_spread(part.iter().flatten().copied());
            for (best, part) in best.iter_mut().zip(&part) {
                *best = part.map_or(*best, |part| best.max((part - mean) / spread));
            }
        }
        let known = best.iter().copied().filter(|best| best.is_finite());
        let (best_mean, best_spread) = mean_and_spread(known);
        let (mean, spread) = mean_and_spread(like.iter().flatten().copied());
        for (like, best) in like.iter_mut().zip(best) {
            let Some(like) = like.as_mut().filter(|_| best.is_finite()) else {
                continue;
            };
            let best = (best - best_mean) / best_spread;
            *like = (*like + mean + spread * best) / 2.0;
        }
    }

    /// Words as how far a tool stands out by them: half by those of the whole, half by those of the
    /// part that fits it best.
    fn standing_out(&self, words: Vec<f32>, search: &Search<'_>) -> Vec<f32> {
        let mut whole = self.in_spreads(words);
        if search.request.parts.is_empty() {
            return whole;
        }
        let mut best = vec![0.0_f32; whole.len()];
        for part in &search.request.parts {
            let mut words = vec![0.0; whole.len()];
            for term in part {
                self.add(*term, 1.0, &mut words);
            }
            for (best, words) in best.iter_mut().zip(self.in_spreads(words)) {
                *best = best.max(words);
            }
        }
        for (whole, best) in whole.iter_mut().zip(self.in_spreads(best)) {
            *whole = (*whole + best) / 2.0;
        }
        whole
    }

    fn in_spreads(&self, mut words: Vec<f32>) -> Vec<f32> {
        let seen = words.iter().zip(&self.seen);
        let seen = seen.filter(|(_, seen)| **seen).map(|(words, _)| *words);
        let (_, spread) = mean_and_spread(seen);
        let most = words.iter().fold(0.0_f32, |most, words| most.max(*words));
        let spread = spread.max(most / SPREADS_MAX);
        for words in &mut words {
            *words /= spread;
        }
        words
    }

    fn with_company(&self, mut scores: Vec<f32>) -> Vec<f32> {
        for (first, shelf) in &self.shelves {
            let tools = *first..first + shelf.entries.len();
            let mut best = [f32::NEG_INFINITY; BEST];
            for tool in tools.clone().filter(|tool| self.seen[*tool]) {
                let at = best.partition_point(|better| *better >= scores[tool]);
                if at < BEST {
                    best[at..].rotate_right(1);
                    best[at] = scores[tool];
                }
            }
            let best = best.iter().filter(|score| score.is_finite());
            let company = best.clone().sum::<f32>() / best.count().max(1) as f32;
            for tool in tools {
                scores[tool] += COMPANY * company;
            }
        }
        scores
    }
}

/// Both. Only what words speak for a tool counts: that they do not is no reason against it.
fn together(words: &[f32], like: &[Option<f32>]) -> Vec<f32> {
    let (mean, spread) = mean_and_spread(like.iter().flatten().copied());
    // What is alone, or all alike, stands out of nothing: then it counts how like it is.
    let alike = like.iter().flatten().all(|like| (like - mean).abs() < 1e-6);
    let mean = if alike { 0.0 } else { mean };
    let both = words.iter().zip(like).map(|(words, like)| {
        let like = like.map_or(0.0, |like| (like - mean) / spread);
        WORDS * words + like
    });
    both.collect()
}

/// The spread is 1 where there is none, so that it can be divided by.
fn mean_and_spread(numbers: impl Iterator<Item = f32>) -> (f32, f32) {
    let (mut count, mut sum, mut squares) = (0.0_f64, 0.0_f64, 0.0_f64);
    for number in numbers.map(f64::from) {
        count += 1.0;
        sum += number;
        squares += number * number;
    }
    if count == 0.0 {
        return (0.0, 1.0);
    }
    let mean = sum / count;
    let spread = (squares / count - mean * mean).max(0.0).sqrt();
    let spread = if spread < 1e-6 { 1.0 } else { spread };
    (mean as f32, spread as f32)
}
