// Development servers, from the packages of this folder.
export { createServer } from 'vite';
export { default as webpack } from 'webpack';
export { default as WebpackDevServer } from 'webpack-dev-server';
