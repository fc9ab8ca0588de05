package main

import "net/http"

func (d *daemon) publicHandler() http.Handler  { return http.NotFoundHandler() }
func (d *daemon) adminHandler() http.Handler   { return http.NotFoundHandler() }
func (d *daemon) metricsHandler() http.Handler { return http.NotFoundHandler() }
