//! Grafana dashboard, generated from the table of the counters.

use mqnet_netdev::LaneCounters;
use mqnet_netdev::stats::{LaneCounter, Unit};
use serde_json::{Value, json};

/// Size of a panel in the grid of 24 columns.
const WIDTH: usize = 12;
const HEIGHT: usize = 7;
/// Labels that separate the series of a panel.
const LABELS: &str = "link, side, channel";

/// Content of `packaging/grafana/mqnet.json`.
pub(crate) fn text() -> String {
    let selected = r#"{link=~"$link"}"#;
    let mut panels = vec![
        panel("Links", "1: up, 0: down", "none", &format!("mqnet_link_up{selected}"), "{{link}}"),
        panel(
            "Drops by reason",
            "Every drop has one reason; see the page of the counters",
            "pps",
            &format!("sum by (link, reason) (rate(mqnet_drops_total{selected}[$__rate_interval]))"),
            "{{link}} {{reason}}",
        ),
    ];
    panels.extend(LaneCounters::TABLE.iter().map(|row| counter(row, selected)));
    for (index, panel) in panels.iter_mut().enumerate() {
        let (x, y) = (index % 2 * WIDTH, index / 2 * HEIGHT);
        panel["id"] = json!(index + 1);
        panel["gridPos"] = json!({"x": x, "y": y, "w": WIDTH, "h": HEIGHT});
    }
    let source = json!({"name": "source", "label": "Data source", "type": "datasource",
        "query": "prometheus"});
    let link = json!({"name": "link", "label": "Link", "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": "label_values(mqnet_link_up, link)", "refresh": 2,
        "multi": true, "includeAll": true, "current": {"text": "All", "value": "$__all"}});
    let dashboard = json!({"title": "mqnet", "uid": "mqnet", "tags": ["mqnet", "network"],
        "schemaVersion": 39, "refresh": "10s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, link]}, "panels": panels});
    format!("{dashboard:#}\n")
}

fn counter(row: &LaneCounter, selected: &str) -> Value {
    let metric = format!("mqnet_{}", row.metric);
    let expression = format!("sum by ({LABELS}) (rate({metric}{selected}[$__rate_interval]))");
    let unit = match row.unit {
        Unit::Frames => "pps",
        Unit::Bytes => "Bps",
        Unit::Events => "ops",
        // The metric is in seconds, so its rate is a share of time.
        Unit::Nanoseconds => "percentunit",
    };
    let action = if row.action.is_empty() { "" } else { "When it grows: " };
    let description = format!("{} {action}{}", row.help, row.action);
    let legend = "{{link}} {{side}} {{channel}}";
    panel(row.metric, description.trim(), unit, &expression, legend)
}

fn panel(title: &str, description: &str, unit: &str, expression: &str, legend: &str) -> Value {
    let source = json!({"type": "prometheus", "uid": "${source}"});
    json!({"type": "timeseries", "title": title, "description": description,
        "datasource": source, "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": source, "expr": expression,
            "legendFormat": legend}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the dashboard has a panel for each counter, and no two panels share an id.
    #[test]
    fn dashboard_has_every_counter() {
        let dashboard: Value = serde_json::from_str(&text()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert_eq!(panels.len(), LaneCounters::TABLE.len() + 2);
        for row in LaneCounters::TABLE {
            let metric = format!("(mqnet_{}{{", row.metric);
            let has = |panel: &Value| panel.to_string().contains(&metric);
            assert!(panels.iter().any(has), "{metric}");
        }
        let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
        ids.dedup();
        assert_eq!(ids.len(), panels.len());
    }
}
