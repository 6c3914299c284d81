//! What an editor says of a file: it reads the JSON Schema, and nothing of ours.

use boon::{Compiler, SchemaIndex, Schemas};

pub(crate) struct Editor {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Editor {
    pub(crate) fn with(json_schema: &str) -> Self {
        let schema: serde_json::Value = serde_json::from_str(json_schema).unwrap();
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let place = "http://localhost/quaymaster.schema.json";
        compiler.add_resource(place, schema).unwrap();
        let index = compiler.compile(place, &mut schemas).unwrap();
        Self { schemas, index }
    }

    /// Why the file is refused.
    pub(crate) fn refuses(&self, text: &str) -> Option<String> {
        let file: serde_json::Value = match toml::from_str(text) {
            Ok(file) => file,
            Err(error) => return Some(error.to_string()),
        };
        self.schemas.validate(&file, self.index).err().map(|error| error.to_string())
    }
}
