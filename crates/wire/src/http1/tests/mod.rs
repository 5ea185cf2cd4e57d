mod body;
mod head;
mod text;
