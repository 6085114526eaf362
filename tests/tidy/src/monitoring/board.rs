//! The dashboard: its panels with their queries, and the right shape for Grafana.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The dashboard.
pub const BOARD: &str = "dist/monitoring/podvisor.json";

/// Columns of a dashboard (Grafana's `gridPos`).
const COLUMNS: u32 = 24;

/// The variable for choosing a panel's datasource.
const DATASOURCE: &str = "${datasource}";

#[derive(Debug, Deserialize)]
struct Board {
    templating: Templating,
    panels: Vec<Panel>,
}

#[derive(Debug, Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    query: serde_json::Value,
}

/// A panel, or the heading of a row.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panel {
    id: u32,
    r#type: String,
    title: String,
    #[serde(default)]
    description: String,
    grid_pos: Place,
    datasource: Option<Datasource>,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Place {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

#[derive(Clone, Debug, Deserialize)]
struct Datasource {
    uid: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    ref_id: String,
    expr: String,
    legend_format: String,
}

/// A query of the dashboard.
#[derive(Clone, Debug)]
pub struct Query {
    /// The panel's title, or the variable's name.
    pub panel: String,
    /// The query.
    pub text: String,
    /// The name of each series, with labels in double braces.
    pub legend: String,
}

impl Query {
    /// The labels named in the legend.
    #[must_use]
    pub fn named(&self) -> Vec<&str> {
        let labels = self.legend.split("{{").skip(1);
        labels.filter_map(|rest| rest.split_once("}}")).map(|(label, _)| label.trim()).collect()
    }
}

/// The dashboard's panels, and all its queries, those of its variables among them.
///
/// # Errors
/// If the text is no dashboard.
pub fn panels(text: &str) -> anyhow::Result<(Vec<Panel>, Vec<Query>)> {
    let board: Board = serde_json::from_str(text)?;
    let of_panel = |panel: &Panel| {
        let title = panel.title.clone();
        let query = move |target: Target| Query {
            panel: title.clone(),
            text: target.expr,
            legend: target.legend_format,
        };
        panel.targets.clone().into_iter().map(query).collect::<Vec<_>>()
    };
    let mut queries: Vec<Query> = board.panels.iter().flat_map(of_panel).collect();
    for variable in board.templating.list {
        // A query variable of a Prometheus: label_values(SELECTOR, LABEL).
        let text = variable.query["query"].as_str().unwrap_or_default();
        let inner = text.strip_prefix("label_values(").and_then(|text| text.strip_suffix(')'));
        if let Some((selector, label)) = inner.and_then(|inner| inner.rsplit_once(',')) {
            let legend = format!("{{{{{}}}}}", label.trim());
            queries.push(Query { panel: variable.name, text: selector.to_owned(), legend });
        }
    }
    Ok((board.panels, queries))
}

/// One line for each incomplete panel, and for each one covering another.
#[must_use]
pub fn check_shape(panels: &[Panel]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut ids = BTreeSet::new();
    for (at, panel) in panels.iter().enumerate() {
        let mut breach =
            |what: &str| breaches.push(format!("{BOARD}: {} {:?}: {what}", panel.id, panel.title));
        if !ids.insert(panel.id) {
            breach("the id is another panel's");
        }
        if panel.grid_pos.x + panel.grid_pos.w > COLUMNS {
            breach("the panel is wider than the board");
        }
        if panels[..at].iter().any(|other| other.grid_pos.covers(panel.grid_pos)) {
            breach("the panel covers another");
        }
        if panel.r#type == "row" {
            continue;
        }
        if panel.description.is_empty() {
            breach("nothing says what the panel shows");
        }
        if panel.datasource.as_ref().is_none_or(|source| source.uid != DATASOURCE) {
            breach("the datasource cannot be chosen");
        }
        let names: BTreeSet<_> = panel.targets.iter().map(|target| &target.ref_id).collect();
        if panel.targets.is_empty() || names.len() != panel.targets.len() {
            breach("there is no query, or two have one name");
        }
    }
    breaches
}

impl Place {
    fn covers(self, other: Place) -> bool {
        let apart = |at: u32, size: u32, other_at: u32, other_size: u32| {
            at + size <= other_at || other_at + other_size <= at
        };
        !apart(self.x, self.w, other.x, other.w) && !apart(self.y, self.h, other.y, other.h)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANEL: &str = r#"{ "id": 2, "type": "stat", "title": "Pods", "description": "Pods.",
        "gridPos": { "x": 0, "y": 1, "w": 12, "h": 8 }, "datasource": { "uid": "${datasource}" },
        "targets": [{ "refId": "A", "expr": "sum(x)", "legendFormat": "{{instance}} of {{ job }}" }] }"#;

    fn board(panels: &[&str]) -> String {
        let variable = r#"{ "name": "node", "query": { "query": "label_values(x{a=\"b\"}, node)" } }"#;
        let chosen = r#"{ "name": "datasource", "query": "prometheus" }"#;
        let list = format!("{{ \"list\": [{chosen}, {variable}] }}");
        format!("{{ \"templating\": {list}, \"panels\": [{}] }}", panels.join(","))
    }

    #[test]
    fn queries_are_those_of_panels_and_of_variables_with_the_labels_that_they_show() {
        let (panels, queries) = panels(&board(&[PANEL])).unwrap();
        assert_eq!(check_shape(&panels), Vec::<String>::new());
        let found: Vec<_> = queries.iter().map(|query| (query.text.as_str(), query.named())).collect();
        assert_eq!(found, [("sum(x)", vec!["instance", "job"]), ("x{a=\"b\"}", vec!["node"])]);
    }

    #[test]
    fn panels_that_cannot_be_seen_or_chosen_for_are_found() {
        let beside = PANEL.replace("\"x\": 0", "\"x\": 11").replace("\"id\": 2", "\"id\": 3");
        let wide = PANEL.replace("\"w\": 12", "\"w\": 25").replace("\"y\": 1", "\"y\": 9");
        let fixed = PANEL.replace("${datasource}", "prod").replace("\"y\": 1", "\"y\": 20").replace('2', "4");
        let (panels, _) = panels(&board(&[PANEL, &beside, &wide, &fixed])).unwrap();
        let breaches: Vec<_> = check_shape(&panels).into_iter().map(|line| line.replace(BOARD, "")).collect();
        assert_eq!(
            breaches,
            [
                ": 3 \"Pods\": the panel covers another",
                ": 2 \"Pods\": the id is another panel's",
                ": 2 \"Pods\": the panel is wider than the board",
                ": 4 \"Pods\": the datasource cannot be chosen",
            ]
        );
    }
}
