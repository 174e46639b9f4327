import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';
import { startKeys } from './lib/keys.svelte';
import { startRouter } from './lib/router.svelte';
import { startTheme } from './lib/theme';

startTheme();
startRouter();
startKeys();
mount(App, { target: document.getElementById('app')! });
