//! What an upload leaves outside of the store: rows of its ledger, files of its objects.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use crate::runner::{Dump, Seen};

/// Every row and every object in `folder`, beside what `dump` has already.
pub(crate) async fn add_to(dump: &mut Dump, folder: &Path) {
    let mut add = |name: String| dump.insert(name, Seen::THERE);
    for file in files(&folder.join("objects")) {
        add(file);
    }
    let ledger = folder.join("uploads.db");
    if ledger.exists() {
        for row in rows(&ledger).await {
            add(row);
        }
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        }
        all.push(format!("file {}", entry.path().display()));
    }
    all
}

async fn column(ledger: &mut SqliteConnection, query: String) -> Vec<String> {
    let rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(ledger).await.unwrap();
    rows.into_iter().map(|row| row.get(0)).collect()
}

async fn rows(file: &Path) -> Vec<String> {
    let mut ledger = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    let mut all = Vec::new();
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    for table in column(&mut ledger, tables.to_owned()).await {
        let columns = column(&mut ledger, format!("SELECT name FROM pragma_table_info('{table}')")).await;
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
        let found = format!("SELECT {} FROM \"{table}\"", quoted.join(" || ',' || "));
        all.extend(column(&mut ledger, found).await.into_iter().map(|row| format!("row {table} {row}")));
    }
    ledger.close().await.unwrap();
    all
}
